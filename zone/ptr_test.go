package zone

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// ptrOf returns what the reverse name of an address points to, or the outcome if it is no success.
func ptrOf(t *testing.T, view *View, addr string) string {
	t.Helper()
	result := view.Lookup(mustName(t, reverseText(netip.MustParseAddr(addr))), dns.TypePTR)
	switch {
	case result.Outcome != Success:
		return result.Outcome.String()
	case len(result.RRset.Data) != 1:
		t.Fatalf("%s: %d PTR records", addr, len(result.RRset.Data))
	}
	return Name(result.RRset.Data[0]).String()
}

func TestThePTRPointsToTheBestName(t *testing.T) {
	in := func(namespace string, p Peer) Peer {
		p.Namespace = namespace
		return p
	}
	const addr = "192.0.2.1"
	far := peerAt("web", "web-9", addr)
	far.Target = mustName(t, "aaa.web.shop.svc.peers.test.")
	for _, test := range []struct {
		name  string
		peers []Peer
		want  string
	}{
		{"a pod", []Peer{peerAt("", "", addr)}, "192-0-2-1.shop.pod.peers.test."},
		{
			"a service before a pod",
			[]Peer{in("bank", peerAt("", "", addr)), peerAt("web", "", addr)},
			"192-0-2-1.web.shop.svc.peers.test.",
		},
		{
			"a hostname before a service",
			[]Peer{in("bank", peerAt("web", "", addr)), peerAt("web", "web-0", addr)},
			"web-0.web.shop.svc.peers.test.",
		},
		{"a hostname needs a service", []Peer{peerAt("", "web-0", addr)}, "192-0-2-1.shop.pod.peers.test."},
		{
			"canonical order of hostnames",
			[]Peer{peerAt("web", "web-10", addr), peerAt("web", "Web-2", addr), peerAt("web", "x", addr)},
			"web-10.web.shop.svc.peers.test.",
		},
		{
			"services weigh more than hostnames",
			[]Peer{peerAt("web", "a", addr), peerAt("db", "z", addr)},
			"z.db.shop.svc.peers.test.",
		},
		{
			"namespaces weigh more than services",
			[]Peer{peerAt("a", "a", addr), in("bank", peerAt("z", "z", addr))},
			"z.z.bank.svc.peers.test.",
		},
		{
			"pods in order of namespaces",
			[]Peer{peerAt("", "", addr), in("bank", peerAt("", "", addr))},
			"192-0-2-1.bank.pod.peers.test.",
		},
		{"no target of a peer's own", []Peer{far}, "web-9.web.shop.svc.peers.test."},
		{"a name that is too long is not there", []Peer{peerAt(strings.Repeat("s", 64), "a", addr)}, "192-0-2-1.shop.pod.peers.test."},
	} {
		for _, turned := range []bool{false, true} {
			peers := slices.Clone(test.peers)
			if turned {
				slices.Reverse(peers)
			}
			store := newTestStore(t, "peers.test.", "test.")
			store.Apply(Change{Object: "a", Peers: peers})
			if got := ptrOf(t, store.View(), addr); got != test.want {
				t.Errorf("%s: got %s, want %s", test.name, got, test.want)
			}
		}
	}
}

func TestThePTRMovesWithItsPeer(t *testing.T) {
	for mode, ranges := range map[string][]string{"no ranges": nil, "ranges": {"192.0.2.0/25", "198.51.100.0/24"}} {
		t.Run(mode, func(t *testing.T) {
			store := newReverseStore(t, ranges, "peers.test.")
			a, b := peerAt("web", "web-0", "192.0.2.1"), peerAt("web", "web-1", "192.0.2.1", "192.0.2.2")
			others := uint32(0)
			renamed := peerAt("web", "web-2", "192.0.2.1")
			spelled := peerAt("web", "192-0-2-1", "192.0.2.1")
			for _, step := range []struct {
				change Change
				want   string
				serial uint32
			}{
				{Change{Object: "b", Peers: []Peer{b}}, "web-1.web.shop.svc.peers.test.", 2},
				{Change{Object: "a", Peers: []Peer{a}}, "web-0.web.shop.svc.peers.test.", 3},
				{Change{Object: "c", Peers: []Peer{peerAt("", "", "192.0.2.1")}}, "web-0.web.shop.svc.peers.test.", 3},
				{Change{Object: "d", Peers: []Peer{peerAt("web", "web-0", "203.0.113.1")}}, "web-0.web.shop.svc.peers.test.", 3},
				{Change{Object: "a", Peers: []Peer{renamed}}, "web-1.web.shop.svc.peers.test.", 4},
				{Change{Object: "b"}, "web-2.web.shop.svc.peers.test.", 5},
				{Change{Object: "a", Excluded: []Exclusion{{renamed, NotReady}}}, "192-0-2-1.shop.pod.peers.test.", 6},
				{Change{Object: "a", Peers: []Peer{spelled}}, "192-0-2-1.web.shop.svc.peers.test.", 7},
				// Another kind of name, but the same name.
				{Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}}, "192-0-2-1.web.shop.svc.peers.test.", 7},
				{Change{Object: "a"}, "192-0-2-1.shop.pod.peers.test.", 8},
				{Change{Object: "c"}, map[string]string{"no ranges": "out of zone", "ranges": "NODATA"}[mode], 9},
			} {
				store.Apply(step.change)
				if got := ptrOf(t, store.View(), "192.0.2.1"); got != step.want {
					t.Errorf("%v: got %s, want %s", step.change, got, step.want)
				}
				if ranges == nil {
					// One serial for all addresses: 203.0.113.1 moves it too.
					if step.change.Object == "d" {
						others++
					}
					if got := store.View().addresses.serial; got != step.serial+others {
						t.Errorf("%v: got serial %d, want %d", step.change, got, step.serial+others)
					}
					continue
				}
				if got := serialOf(t, store, "1.2.0.192.in-addr.arpa."); got != step.serial {
					t.Errorf("%v: got serial %d, want %d", step.change, got, step.serial)
				}
				if got := serialOf(t, store, "100.51.198.in-addr.arpa."); got != 1 {
					t.Errorf("%v: the serial of another reverse zone is %d, want 1", step.change, got)
				}
			}
		})
	}
}

func serialOf(t *testing.T, store *Store, apex string) uint32 {
	t.Helper()
	name := mustName(t, apex)
	return store.View().Lookup(name, dns.TypeSOA).RRset.RRs(name)[0].(*dns.SOA).Serial
}

// Who looks up an address, then the name, then its address, comes back to where it began, in one view. An address whose
// names are all in the first zone has a PTR record.
func TestPTRRecordsAreForwardConfirmed(t *testing.T) {
	for _, zones := range [][]string{
		{"peers.test."},
		{"test.", "peers.test."},
		{"peers.test.", "test."},
		{"test.", "svc.test."},
		{"test.", "shop.svc.test.", "web.svc.svc.test.", "pod.pod.test.", "web-0.tcp.pod.svc.test."},
		{"test.", "svc.test.", "pod.test."},
	} {
		for mode, reverse := range reverseModes {
			random := rand.New(rand.NewPCG(3, 3))
			store := newReverseStore(t, reverse.ranges, zones...)
			for step := range 80 {
				store.Apply(Change{Object: string(rune('a' + random.IntN(8))), Peers: randomPeers(random)})
				view := store.View()
				for _, addr := range allAddrs() {
					target := ptrOf(t, view, addr.String())
					if !strings.HasSuffix(target, ".") {
						if len(zones) == 1 && (mode == "no ranges" || mode == "all ranges") && len(store.addrs[addr]) > 0 {
							t.Fatalf("%s, step %d: the PTR of %s: %s", mode, step, addr, target)
						}
						continue
					}
					name := mustName(t, target)
					rrtype, data := addressData(addr)
					result := view.Lookup(name, rrtype)
					if !slices.Contains(result.RRset.Data, data) || result.Zone.String() != zones[0] {
						t.Fatalf("%v, %s, step %d: the PTR of %s is %s, which has %v in %s",
							zones, mode, step, addr, target, result.RRset.RRs(name), result.Zone)
					}
				}
			}
		}
	}
}

func TestBeforeTheFirstApplyAnyAddressMayBeAPeers(t *testing.T) {
	nibbles := strings.Repeat("0.", 32)
	for _, test := range []struct {
		ranges []string
		want   map[string]Outcome
	}{
		{nil, map[string]Outcome{
			"1.2.0.192.in-addr.arpa.": NotSynced, nibbles + "ip6.arpa.": NotSynced,
			"2.0.192.in-addr.arpa.": OutOfZone, "x.1.2.0.192.in-addr.arpa.": OutOfZone, "ip6.arpa.": OutOfZone,
			"256.2.0.192.in-addr.arpa.": OutOfZone, "other.test.": OutOfZone,
		}},
		{[]string{"192.0.2.0/24"}, map[string]Outcome{
			"1.2.0.192.in-addr.arpa.": NotSynced, "2.0.192.in-addr.arpa.": NotSynced, "x.y.2.0.192.in-addr.arpa.": NotSynced,
			"1.3.0.192.in-addr.arpa.": OutOfZone, nibbles + "ip6.arpa.": OutOfZone, "0.192.in-addr.arpa.": OutOfZone,
		}},
	} {
		store := newReverseStore(t, test.ranges, "peers.test.")
		for name, want := range test.want {
			for _, rrtype := range []uint16{dns.TypePTR, dns.TypeSOA, dns.TypeA} {
				if got := outcome(t, store, name, rrtype); got != want {
					t.Errorf("ranges %v: %s: got %v, want %v", test.ranges, name, got, want)
				}
			}
		}
	}
}

func TestAnyAtAReverseNameIsAnswered(t *testing.T) {
	for _, ranges := range [][]string{nil, {"192.0.2.0/24"}, {"192.0.2.1/32"}} {
		store := newReverseStore(t, ranges, "peers.test.")
		store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "", "192.0.2.1")}})
		if got := outcome(t, store, "1.2.0.192.in-addr.arpa.", dns.TypeANY); got != Success {
			t.Errorf("ranges %v: got %v, want success", ranges, got)
		}
	}
}

func TestReverseZonesAreListedAndWritten(t *testing.T) {
	peers := []Peer{peerAt("web", "web-0", "192.0.2.1", "2001:db8::1"), peerAt("web", "", "192.0.2.10", "198.51.100.1")}
	store := newReverseStore(t, []string{"192.0.2.0/24", "198.51.100.0/31"}, "peers.test.")
	store.Apply(Change{Object: "a", Peers: peers})
	var zones strings.Builder
	for _, apex := range store.View().Zones() {
		if apex.String() == "peers.test." {
			continue
		}
		if err := store.View().WriteMaster(&zones, apex); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Join([]string{
		"2.0.192.in-addr.arpa. 5 IN SOA ns.dns.peers.test. hostmaster.peers.test. 2 7200 1800 86400 2",
		"2.0.192.in-addr.arpa. 5 IN NS ns.dns.peers.test.",
		"1.2.0.192.in-addr.arpa. 5 IN PTR web-0.web.shop.svc.peers.test.",
		"10.2.0.192.in-addr.arpa. 5 IN PTR 192-0-2-10.web.shop.svc.peers.test.",
		"0.100.51.198.in-addr.arpa. 5 IN SOA ns.dns.peers.test. hostmaster.peers.test. 1 7200 1800 86400 2",
		"0.100.51.198.in-addr.arpa. 5 IN NS ns.dns.peers.test.",
		"1.100.51.198.in-addr.arpa. 5 IN SOA ns.dns.peers.test. hostmaster.peers.test. 2 7200 1800 86400 2",
		"1.100.51.198.in-addr.arpa. 5 IN NS ns.dns.peers.test.",
		"1.100.51.198.in-addr.arpa. 5 IN PTR 198-51-100-1.web.shop.svc.peers.test.",
	}, "\n") + "\n"
	if diff := cmp.Diff(want, strings.ReplaceAll(zones.String(), "\t", " ")); diff != "" {
		t.Errorf("reverse zones (-want +got):\n%s", diff)
	}

	store = newTestStore(t, "peers.test.")
	store.Apply(Change{Object: "a", Peers: peers})
	if got := store.View().Zones(); len(got) != 1 {
		t.Errorf("without ranges: zones %v, want one", got)
	}
}

func TestAnExclusionIsFoundAtItsReverseName(t *testing.T) {
	store := newReverseStore(t, []string{"0.0.0.0/0"}, "test.")
	store.Apply(Change{Object: "a", Excluded: []Exclusion{{peerAt("web", "", "192.0.2.1"), NotReady}}})
	for name, want := range map[string]int{
		"1.2.0.192.in-addr.arpa.": 1, "192-0-2-1.shop.pod.test.": 1, "2.2.0.192.in-addr.arpa.": 0, "in-addr.arpa.": 0,
		// The name of one zone says nothing in another.
		"192-0-2-1.shop.pod.in-addr.arpa.": 0, "1.2.0.192.in-addr.arpa.test.": 0,
	} {
		if got := store.View().ExcludedAt(mustName(t, name)); len(got) != want {
			t.Errorf("%s: got %v, want %d", name, got, want)
		}
	}
}

func TestALookupDoesNotAllocate(t *testing.T) {
	for _, ranges := range [][]string{nil, {"192.0.2.0/25", "128.0.0.0/1", "::/1"}} {
		store := newReverseStore(t, ranges, "peers.test.")
		store.Apply(Change{Object: "a", Peers: []Peer{peerAt("web", "web-0", "192.0.2.1", "2001:db8::1")}})
		view := store.View()
		for _, text := range []string{
			"web-0.web.shop.svc.peers.test.", "1.2.0.192.in-addr.arpa.", "2.2.0.192.in-addr.arpa.", "other.test.",
			reverseText(netip.MustParseAddr("2001:db8::1")), "nobody.peers.test.",
		} {
			name := mustName(t, text)
			if n := testing.AllocsPerRun(100, func() { view.Lookup(name, dns.TypePTR) }); n > 0 {
				t.Errorf("ranges %v: %s: %v allocations", ranges, text, n)
			}
		}
	}
}
