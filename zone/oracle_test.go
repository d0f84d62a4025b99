package zone

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// The oracle answers from a flat list of records as text, by searching all of it (RFC 1034 §4.3.2 without
// delegations and wildcards). It makes the records of DESIGN's table with string handling of its own and shares no
// code with what it tests.
type oracle struct {
	apex    string
	records map[string]map[string][]string // owner → type → RDATA as text
}

func (o *oracle) add(owner, rrtype, data string) {
	if o.records[owner] == nil {
		o.records[owner] = map[string][]string{}
	}
	if !slices.Contains(o.records[owner][rrtype], data) {
		o.records[owner][rrtype] = append(o.records[owner][rrtype], data)
	}
}

func newOracle(apex string, peers []Peer) *oracle {
	o := &oracle{apex: apex, records: map[string]map[string][]string{}}
	o.add(apex, "NS", "ns.dns."+apex)
	o.add("ns.dns."+apex, "A", "192.0.2.253")
	o.add("dns-version."+apex, "TXT", `"1.1.0"`)
	for _, p := range peers {
		for _, addr := range p.Addrs {
			o.add(hyphens(addr)+"."+p.Namespace+".pod."+apex, typeOf(addr), addr.String())
			if p.Service != "" {
				o.add(p.Service+"."+p.Namespace+".svc."+apex, typeOf(addr), addr.String())
				o.add(hostOf(p, addr)+"."+p.Service+"."+p.Namespace+".svc."+apex, typeOf(addr), addr.String())
			}
		}
	}
	pods := map[string][]string{}
	for _, p := range peers {
		if p.Service == "" {
			continue
		}
		service := p.Service + "." + p.Namespace + ".svc." + apex
		for _, addr := range p.Addrs {
			host := hostOf(p, addr) + "." + service
			target := host
			if t := p.Target.String(); p.Target != "" && (!strings.HasSuffix(t, "."+apex) || o.hasAddress(t)) {
				target = t
			}
			for _, port := range p.Ports {
				srv := fmt.Sprintf("%d %s", port.Number, target)
				o.add(service, "SRV", srv)
				o.add(host, "SRV", srv)
				if port.Name != "" {
					o.add(fmt.Sprintf("_%s._%s.%s", port.Name, port.Protocol, service), "SRV", srv)
				}
			}
			if p.NodeName == "" && p.Pod != "" {
				key := service + " " + p.Pod
				pods[key] = append(pods[key], addr.String())
			}
		}
		if p.NodeName != "" {
			o.add("_nodes."+service, "TXT", fmt.Sprintf("%q", p.NodeName))
		}
	}
	for key, addrs := range pods {
		service, pod, _ := strings.Cut(key, " ")
		least := slices.MinFunc(addrs, func(a, b string) int {
			return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b))
		})
		o.add("_nodes."+service, "TXT", fmt.Sprintf("%q", pod+"@"+least))
	}
	for _, types := range o.records {
		srvs := types["SRV"]
		for i, srv := range srvs {
			srvs[i] = fmt.Sprintf("0 %d %s", max(1, 100/len(srvs)), srv)
		}
	}
	return o
}

func (o *oracle) hasAddress(name string) bool {
	return len(o.records[name]["A"])+len(o.records[name]["AAAA"]) > 0
}

func typeOf(addr netip.Addr) string {
	if addr.Is4() {
		return "A"
	}
	return "AAAA"
}

func hyphens(addr netip.Addr) string {
	text := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
	if strings.HasPrefix(text, "-") {
		text = "0" + text
	}
	if strings.HasSuffix(text, "-") {
		text += "0"
	}
	return text
}

func hostOf(p Peer, addr netip.Addr) string {
	if p.Hostname != "" {
		return p.Hostname
	}
	return hyphens(addr)
}

// lookup returns the outcome and the records, sorted as text.
func (o *oracle) lookup(name, rrtype string) (Outcome, []string) {
	if name != o.apex && !strings.HasSuffix(name, "."+o.apex) {
		return OutOfZone, nil
	}
	if rrtype == "SOA" && name == o.apex {
		return Success, []string{"SOA"}
	}
	if data := o.records[name][rrtype]; len(data) > 0 {
		return Success, slices.Sorted(slices.Values(data))
	}
	for owner := range o.records {
		if owner == name || strings.HasSuffix(owner, "."+name) {
			return NoData, nil
		}
	}
	return NXDomain, nil
}

// names returns every owner name, and the names one label above, below and beside each.
func (o *oracle) names() []string {
	seen := map[string]bool{"test.": true, "other.": true, ".": true}
	for owner := range o.records {
		_, parent, _ := strings.Cut(owner, ".")
		for _, name := range []string{owner, parent, "below." + owner, "_tcp." + owner, "beside." + parent, "svc." + parent} {
			if name != "" {
				seen[name] = true
			}
		}
	}
	return slices.Sorted(func(yield func(string) bool) {
		for name := range seen {
			if !yield(name) {
				return
			}
		}
	})
}

// answer turns a Result into the oracle's words.
func answer(result Result, name Name) (Outcome, []string) {
	if result.Outcome != Success {
		return result.Outcome, nil
	}
	if result.RRset.Type == dns.TypeSOA {
		return Success, []string{"SOA"}
	}
	var data []string
	for _, rr := range result.RRset.RRs(name) {
		data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(data)
	return Success, data
}

func TestLookupEqualsOracle(t *testing.T) {
	const apex = "peers.test."
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		store := newTestStore(t, apex)
		objects := map[string][]Peer{}
		for step := range 60 {
			var changes []Change
			for range 1 + random.IntN(3) {
				name := fmt.Sprintf("object/%d", random.IntN(12))
				peers := randomPeers(random)
				objects[name] = peers
				changes = append(changes, Change{Object: name, Peers: peers})
			}
			store.Apply(changes...)

			var all []Peer
			for _, peers := range objects {
				all = append(all, peers...)
			}
			compareAll(t, fmt.Sprintf("seed %d, step %d", seed, step), store.View(), newOracle(apex, all))
			if t.Failed() {
				return
			}
		}
	}
}

func compareAll(t *testing.T, when string, view *View, o *oracle) {
	t.Helper()
	types := []string{"A", "AAAA", "SRV", "TXT", "NS", "SOA", "MX"}
	for _, text := range o.names() {
		name, err := ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, rrtype := range types {
			wantOutcome, want := o.lookup(text, rrtype)
			result := view.Lookup(name, dns.StringToType[rrtype])
			gotOutcome, got := answer(result, name)
			if gotOutcome != wantOutcome || !slices.Equal(got, want) {
				t.Errorf("%s: %s %s: got %v, want %v\n%s", when, text, rrtype, gotOutcome, wantOutcome, cmp.Diff(want, got))
			}
			if negative := gotOutcome == NXDomain || gotOutcome == NoData; negative != (result.SOA.Type == dns.TypeSOA) {
				t.Errorf("%s: %s %s: %v with SOA %v", when, text, rrtype, gotOutcome, result.SOA)
			}
		}
	}
}

func randomPeers(random *rand.Rand) []Peer {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	var peers []Peer
	for range random.IntN(4) {
		p := Peer{
			Namespace: pick("shop", "svc", "pod"),
			Service:   pick("web", "svc", "tcp", ""),
			Hostname:  pick("", "", "web-0", "web-1", "pod"),
			Target: Name(pick("", "", "\x03far\x04test\x00", "\x03web\x03svc\x03svc\x05peers\x04test\x00",
				"\x05web-0\x03tcp\x03pod\x03svc\x05peers\x04test\x00")),
			Pod:      pick("", "web-0", "web-1"),
			NodeName: pick("", "", "a@b", "web-0@192.0.2.1"),
		}
		for range 1 + random.IntN(2) {
			p.Addrs = append(p.Addrs, randomAddr(random))
		}
		for range random.IntN(3) {
			p.Ports = append(p.Ports, Port{pick("", "http", "tcp"), pick("tcp", "udp"), uint16(80 + random.IntN(2))})
		}
		peers = append(peers, p)
	}
	return peers
}

func randomAddr(random *rand.Rand) netip.Addr {
	if random.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(6))})
	}
	addr := netip.MustParseAddr("2001:db8::").As16()
	if random.IntN(4) == 0 {
		addr = [16]byte{} // compressed forms that begin with "::"
	}
	binary.BigEndian.PutUint16(addr[14:], uint16(random.IntN(3)))
	addr[5] = 1 + byte(random.IntN(2))
	return netip.AddrFrom16(addr)
}

func newTestStore(t testing.TB, apexes ...string) *Store {
	t.Helper()
	c := Config{TTL: 5, NegativeTTL: 2, NameServer: []netip.Addr{netip.MustParseAddr("192.0.2.253")}, Serial: 1}
	for _, apex := range apexes {
		c.Zones = append(c.Zones, mustName(t, apex))
	}
	store, err := NewStore(c)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func mustName(t testing.TB, s string) Name {
	t.Helper()
	name, err := ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return name
}
