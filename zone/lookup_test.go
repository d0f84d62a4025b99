package zone

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// answer turns a Result into the oracle's words.
func answer(result Result, name Name) (Outcome, []string) {
	if result.Outcome != Success {
		return result.Outcome, nil
	}
	if result.RRset.Type == dns.TypeSOA {
		return Success, []string{soaNames(result.RRset)}
	}
	var data []string
	for _, rr := range result.RRset.RRs(name) {
		data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(data)
	return Success, data
}

func soaNames(set RRset) string {
	soa := set.RRs(Root)[0].(*dns.SOA)
	return soa.Ns + " " + soa.Mbox
}

// reverseModes are ranges, and the zones that they make, written by hand.
var reverseModes = map[string]struct{ ranges, zones []string }{
	"no ranges":  {},
	"all ranges": {[]string{"0.0.0.0/0", "192.0.2.0/24", "::/0"}, []string{"in-addr.arpa.", "ip6.arpa."}},
	"some ranges": {
		[]string{"192.0.2.0/30", "192.0.2.2/32", "2001:db8:0::/47"},
		[]string{
			"0.2.0.192.in-addr.arpa.", "1.2.0.192.in-addr.arpa.", "2.2.0.192.in-addr.arpa.", "3.2.0.192.in-addr.arpa.",
			"0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", "1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.",
		},
	},
	"one of two families": {[]string{"192.0.0.0/23"}, []string{"0.0.192.in-addr.arpa.", "1.0.192.in-addr.arpa."}},
	"wide ranges":         {[]string{"192.0.0.0/16", "::/3"}, []string{"0.192.in-addr.arpa.", "0.ip6.arpa.", "1.ip6.arpa."}},
}

func TestLookupEqualsOracle(t *testing.T) {
	for mode, reverse := range reverseModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			compareRandomly(t, reverse.ranges, reverse.zones)
		})
	}
}

func compareRandomly(t *testing.T, ranges, zones []string) {
	const apex = "peers.test."
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		store := newReverseStore(t, ranges, apex)
		objects := map[string][]Peer{}
		for step := range 30 {
			before := contents(t, store.View())
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
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			compareAll(t, when, store.View(), newOracle(apex, zones, all))
			for apex, is := range contents(t, store.View()) {
				was := before[apex]
				if moved := is.serial != was.serial; moved != (is.records != was.records) || moved && is.serial != was.serial+1 {
					t.Errorf("%s: %s: serial %d after %d, of\n%safter\n%s", when, apex, is.serial, was.serial, is.records, was.records)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

type content struct {
	serial  uint32
	records string
}

// contents returns the records of each zone, by apex, and those of the zones of addresses under "".
func contents(t *testing.T, view *View) map[string]content {
	t.Helper()
	all := map[string]content{}
	for _, z := range view.zones {
		all[z.apex.String()] = content{z.serial, masterOf(t, view, z.apex)}
	}
	if view.addresses != nil {
		var ptrs []string
		for _, addr := range allAddrs() {
			name := mustName(t, reverseText(addr))
			ptrs = append(ptrs, fmt.Sprintln(view.Lookup(name, dns.TypePTR).RRset.RRs(name)))
		}
		all[""] = content{view.addresses.serial, strings.Join(ptrs, "")}
	}
	return all
}

func compareAll(t *testing.T, when string, view *View, o *oracle) {
	t.Helper()
	types := []string{"A", "AAAA", "SRV", "TXT", "NS", "SOA", "PTR", "MX"}
	for _, text := range o.names() {
		name, exists := mustName(t, text), o.exists(text)
		for _, rrtype := range types {
			wantOutcome, want := o.lookup(text, rrtype, exists)
			result := view.Lookup(name, dns.StringToType[rrtype])
			gotOutcome, got := answer(result, name)
			if gotOutcome != wantOutcome || !slices.Equal(got, want) {
				t.Errorf("%s: %s %s: got %v, want %v\n%s", when, text, rrtype, gotOutcome, wantOutcome, cmp.Diff(want, got))
			}
			if zone := o.zoneOf(text); result.Zone != "" && result.Zone.String() != zone || result.Zone == "" && zone != "" {
				t.Errorf("%s: %s %s: in zone %s, want %s", when, text, rrtype, result.Zone, zone)
			}
			if negative := gotOutcome == NXDomain || gotOutcome == NoData; negative != (result.SOA.Type == dns.TypeSOA) ||
				negative && (soaNames(result.SOA) != o.soa() || result.SOA.TTL != 2) {
				t.Errorf("%s: %s %s: %v with SOA %v", when, text, rrtype, gotOutcome, result.SOA)
			}
		}
	}
}
