package zone

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func peerAt(service, hostname string, addrs ...string) Peer {
	p := Peer{Namespace: "shop", Service: service, Hostname: hostname}
	for _, addr := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(addr))
	}
	return p
}

func outcome(t *testing.T, store *Store, name string, rrtype uint16) Outcome {
	t.Helper()
	return store.View().Lookup(mustName(t, name), rrtype).Outcome
}

func TestBeforeTheFirstApplyNothingIsDenied(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	for _, name := range []string{"peers.test.", "web.shop.svc.peers.test."} {
		if got := outcome(t, store, name, dns.TypeA); got != NotSynced {
			t.Errorf("%s: got %v, want not synced", name, got)
		}
	}
	if got := outcome(t, store, "other.test.", dns.TypeA); got != OutOfZone {
		t.Errorf("other.test.: got %v, want out of zone", got)
	}
	_, changed := store.Watch()
	store.Apply()
	<-changed
	if got := outcome(t, store, "web.shop.svc.peers.test.", dns.TypeA); got != NXDomain {
		t.Errorf("after an empty first list: got %v, want NXDOMAIN", got)
	}
}

func TestAnEndpointInTwoObjectsStaysWithEither(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	both := []Peer{peerAt("web", "", "192.0.2.1")}
	store.Apply(Change{Object: "a", Peers: both}, Change{Object: "b", Peers: both})
	store.Apply(Change{Object: "a"})
	for _, name := range []string{"web.shop.svc.peers.test.", "192-0-2-1.shop.pod.peers.test."} {
		if got := outcome(t, store, name, dns.TypeA); got != Success {
			t.Errorf("%s after one of two objects went: got %v, want success", name, got)
		}
	}
	store.Apply(Change{Object: "b"})
	for _, name := range []string{"web.shop.svc.peers.test.", "192-0-2-1.shop.pod.peers.test.", "svc.peers.test.", "pod.peers.test."} {
		if got := outcome(t, store, name, dns.TypeA); got != NXDomain {
			t.Errorf("%s after both went: got %v, want NXDOMAIN", name, got)
		}
	}
}

func TestTheSerialMovesWithContentOnly(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	serial := func() uint32 {
		soa := store.View().Lookup(mustName(t, "peers.test."), dns.TypeSOA).RRset.RRs(mustName(t, "peers.test."))
		return soa[0].(*dns.SOA).Serial
	}
	store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}})
	first := serial()
	view, changed := store.Watch()
	store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}}, Change{Object: "unknown"})
	select {
	case <-changed:
		t.Error("a change that says nothing new published a view")
	default:
	}
	if store.View() != view || serial() != first {
		t.Errorf("a change that says nothing new moved the serial from %d to %d", first, serial())
	}
	store.Apply(Change{Object: "b", Peers: []Peer{peerAt("web", "", "192.0.2.1")}})
	if serial() != first {
		t.Errorf("an object that adds no record moved the serial from %d to %d", first, serial())
	}
	store.Apply(Change{Object: "b", Peers: []Peer{peerAt("web", "", "192.0.2.2")}})
	if serial() != first+1 {
		t.Errorf("one change: got serial %d, want %d", serial(), first+1)
	}
}

func TestAViewNeverChanges(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "web-0", "192.0.2.1")}})
	view := store.View()
	var before, after strings.Builder
	if err := view.WriteMaster(&before, mustName(t, "peers.test.")); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		store.Apply(Change{Object: fmt.Sprint(i), Peers: []Peer{peerAt("web", "web-0", fmt.Sprintf("192.0.2.%d", i))}})
		store.Apply(Change{Object: "a"})
	}
	if err := view.WriteMaster(&after, mustName(t, "peers.test.")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.String(), after.String()); diff != "" {
		t.Errorf("an old view changed:\n%s", diff)
	}
}

func TestAnySpellingOfAnIPv6AddressIsAPodName(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	store.Apply(Change{Object: "a", Peers: []Peer{peerAt("", "", "2001:db8::1", "2001:db8::", "::abcd:1", "192.0.2.1")}})
	for label, want := range map[string]Outcome{
		"2001-db8--1":          Success,
		"2001-DB8-0-0-0-0-0-1": Success,

		"2001-0db8-0000-0000-0000-0000-0000-0001": Success,

		"2001-db8--0-1":    Success,
		"2001-db8--0":      Success,
		"2001-db8--":       Success,
		"2001-db8-0-0--":   Success,
		"0--abcd-1":        Success,
		"--abcd-1":         Success,
		"0-0--abcd-1":      Success,
		"2001-db8--2":      NXDomain,
		"2001-db8--1--":    NXDomain,
		"192-0-2-1":        Success,
		"192-0-2-01":       NXDomain,
		"192-0-2":          NXDomain,
		"--ffff-192-0-2-1": NXDomain,
	} {
		rrtype := dns.TypeAAAA
		if label == "192-0-2-1" {
			rrtype = dns.TypeA
		}
		if got := outcome(t, store, label+".shop.pod.peers.test.", rrtype); got != want {
			t.Errorf("%s: got %v, want %v", label, got, want)
		}
		if got := outcome(t, store, label+".other.pod.peers.test.", rrtype); got != NXDomain {
			t.Errorf("%s in another namespace: got %v, want NXDOMAIN", label, got)
		}
		if got := outcome(t, store, "x."+label+".shop.pod.peers.test.", rrtype); got != NXDomain {
			t.Errorf("below %s: got %v, want NXDOMAIN", label, got)
		}
	}
}

func TestEndpointLabelsAreHostLabels(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192-0-2-1", "2001:db8::": "2001-db8--0", "::1:2": "0--1-2", "2001:db8::1": "2001-db8--1",
	} {
		if got := AddressLabel(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

func TestAPeerWhoseNamesAreTooLongKeepsWhatFits(t *testing.T) {
	apex := strings.Repeat("a.", 85) + "test."
	store := newTestStore(t, apex)
	long := peerAt(strings.Repeat("s", 63), "", "192.0.2.1")
	fits := peerAt("web", "", "192.0.2.2")
	store.Apply(Change{Object: "a", Peers: []Peer{long, fits}})
	if got := outcome(t, store, "192-0-2-1.shop.pod."+apex, dns.TypeA); got != Success {
		t.Errorf("pod name of a peer with a long service: got %v, want success", got)
	}
	if got := outcome(t, store, "web.shop.svc."+apex, dns.TypeA); got != Success {
		t.Errorf("its neighbour: got %v, want success", got)
	}
	if got := store.View().Excluded(); len(got) != 1 || got[0].Reason != BadName || got[0].Service != long.Service {
		t.Errorf("excluded: got %v, want the long one with reason bad-name", got)
	}
	store.Apply(Change{Object: "a", Peers: []Peer{fits}})
	if got := store.View().Excluded(); len(got) != 0 {
		t.Errorf("excluded after it went: got %v", got)
	}
}

// One zone has no room for the service, the other none for the pod either: then the peer is in neither.
func TestAPeerIsTheSameInAllZones(t *testing.T) {
	short, long := strings.Repeat("a.", 40)+"test.", strings.Repeat("b.", 90)+"test."
	for _, zones := range [][]string{{short, long}, {long, short}} {
		store := newTestStore(t, zones...)
		p := peerAt(strings.Repeat("s", 63), strings.Repeat("h", 63), "192.0.2.1")
		p.Namespace = strings.Repeat("n", 63)
		store.Apply(Change{Object: "a", Peers: []Peer{p}})
		if got := outcome(t, store, "192-0-2-1."+p.Namespace+".pod."+short, dns.TypeA); got != NXDomain {
			t.Errorf("pod name in the short zone: got %v, want NXDOMAIN", got)
		}
		if got := store.View().Excluded(); len(got) != 1 || got[0].Service != p.Service {
			t.Errorf("excluded: got %v, want the peer once and whole", got)
		}
	}
}

func TestTheDeepestZoneAnswers(t *testing.T) {
	for _, zones := range [][]string{
		{"test.", "peers.test.", "zone.2.0.192.in-addr.arpa."}, {"zone.2.0.192.in-addr.arpa.", "peers.test.", "test."},
	} {
		store := newReverseStore(t, []string{"192.0.2.0/24"}, zones...)
		store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}})
		for name, want := range map[string]string{
			"web.shop.svc.peers.test.": "peers.test.", "web.shop.svc.test.": "test.", "peers.test.": "peers.test.",
			"1.2.0.192.in-addr.arpa.": "2.0.192.in-addr.arpa.", "web.shop.svc.zone.2.0.192.in-addr.arpa.": "zone.2.0.192.in-addr.arpa.",
		} {
			result := store.View().Lookup(mustName(t, name), dns.TypeANY)
			if result.Outcome != Success || result.Zone.String() != want {
				t.Errorf("%v: %s: got %v from %s, want success from %s", zones, name, result.Outcome, result.Zone, want)
			}
		}
	}
}

// A range that lies in a zone given by name: the reverse zone is the deeper one. The other way round, no PTR record goes
// into a zone that is not a reverse zone.
func TestReverseZonesBesideZonesOfTheSameTree(t *testing.T) {
	for zone, want := range map[string]Outcome{"in-addr.arpa.": Success, "1.2.0.192.in-addr.arpa.": NoData} {
		store := newReverseStore(t, []string{"192.0.2.0/24"}, zone)
		store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}})
		if got := outcome(t, store, "1.2.0.192.in-addr.arpa.", dns.TypePTR); got != want {
			t.Errorf("beside %s: got %v, want %v", zone, got, want)
		}
	}
}

func TestANegativeSOAHasTheNegativeTTL(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	store.Apply()
	result := store.View().Lookup(mustName(t, "nobody.peers.test."), dns.TypeA)
	soa := result.SOA.RRs(result.Zone)[0].(*dns.SOA)
	if soa.Hdr.Ttl != 2 || soa.Minttl != 2 || soa.Ns != "ns.dns.peers.test." {
		t.Errorf("got %v, want TTL and MINIMUM 2 and ns.dns.peers.test.", soa)
	}
}

func TestNewStoreRefuses(t *testing.T) {
	for name, zones := range map[string][]string{
		"no zone": {}, "a zone twice": {"a.test.", "A.test"}, "no room": {strings.Repeat("a.", 120) + "test."},
	} {
		c := Config{}
		for _, z := range zones {
			c.Zones = append(c.Zones, mustName(t, z))
		}
		if _, err := NewStore(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, p := range map[string]netip.Prefix{
		"a zone that a range has too": netip.MustParsePrefix("192.0.2.0/24"), "no range": {},
	} {
		c := Config{Zones: []Name{mustName(t, "2.0.192.in-addr.arpa.")}, Reverse: []netip.Prefix{p}}
		if _, err := NewStore(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Losing a peer is worse than losing a name: without room for its hostname it keeps the hyphenated one.
func TestAPeerWithoutRoomForItsHostnameStays(t *testing.T) {
	short, long := "test.", strings.Repeat("b.", 60)+"test."
	p := peerAt("web", strings.Repeat("h", 63), "192.0.2.1")
	p.Namespace = strings.Repeat("n", 63)
	store := newTestStore(t, short, long)
	store.Apply(Change{Object: "a", Peers: []Peer{p}})
	for _, zone := range []string{short, long} {
		service := "web." + p.Namespace + ".svc." + zone
		if got := outcome(t, store, service, dns.TypeA); got != Success {
			t.Errorf("%s: got %v, want success", service, got)
		}
		if got := outcome(t, store, "192-0-2-1."+service, dns.TypeA); got != Success {
			t.Errorf("192-0-2-1.%s: got %v, want success", service, got)
		}
	}
	if got := store.View().Excluded(); len(got) != 1 || got[0].Reason != BadName || got[0].Hostname != p.Hostname {
		t.Errorf("excluded: got %v, want the peer with its hostname", got)
	}
}

// One node name for a pod, whichever objects speak of it, and none that is cut.
func TestNodeNames(t *testing.T) {
	annotated, plain := peerAt("web", "", "192.0.2.1"), peerAt("web", "", "192.0.2.1", "2001:db8::1")
	annotated.Pod, annotated.NodeName, plain.Pod = "web-0", "shop@far.example.", "web-0"
	long := peerAt("web", "", "192.0.2.2")
	long.Pod = strings.Repeat("p", 250)
	store := newTestStore(t, "test.")
	store.Apply(Change{Object: "a", Peers: []Peer{annotated}}, Change{Object: "b", Peers: []Peer{plain, long}})
	set := store.View().Lookup(mustName(t, "_nodes.web.shop.svc.test."), dns.TypeTXT).RRset
	if len(set.Data) != 1 || set.Data[0][1:] != annotated.NodeName {
		t.Errorf("got %q, want %s alone", set.Data, annotated.NodeName)
	}
}

// A name that exists says nothing of a peer that has it all the same, nor a name between of less than those below.
func TestExclusionsAreAtTheNamesThatAreMissing(t *testing.T) {
	out := peerAt("web", "", "192.0.2.1")
	out.Ports = []Port{{Name: "http", Protocol: "tcp", Number: 80}}
	served := peerAt("", "", "192.0.2.2")
	store := newTestStore(t, "test.")
	store.Apply(Change{Object: "a", Peers: []Peer{served}, Excluded: []Exclusion{{out, NotReady}, {served, NoService}}})
	for name, want := range map[string]int{
		"_tcp.web.shop.svc.test.": 1, "_http._tcp.web.shop.svc.test.": 1, "192-0-2-1.shop.pod.test.": 1, "192-0-2-2.shop.pod.test.": 0,
	} {
		if got := store.View().ExcludedAt(mustName(t, name)); len(got) != want {
			t.Errorf("%s: got %v, want %d", name, got, want)
		}
	}
}

func TestNoOtherSpellingOfAnIPv4AddressIsAPodName(t *testing.T) {
	store := newTestStore(t, "test.")
	store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1", "2001:db8::1")}})
	for _, name := range []string{`192\.0\.2\.1.shop.pod.test.`, "2001:db8::1.shop.pod.test."} {
		if got := outcome(t, store, name, dns.TypeA); got != NXDomain {
			t.Errorf("%s: got %v, want NXDOMAIN", name, got)
		}
	}
}
