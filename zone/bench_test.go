package zone

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// fill returns a store with n peers in services of 100 each.
func fill(b *testing.B, n int) *Store {
	b.Helper()
	return fillStore(newTestStore(b, "peers.test."), n)
}

func fillStore(store *Store, n int) *Store {
	var changes []Change
	for service := range n / 100 {
		c := Change{Object: fmt.Sprintf("endpointslice/shop/web-%d", service)}
		for i := range 100 {
			c.Peers = append(c.Peers, benchPeer(service, i))
		}
		changes = append(changes, c)
	}
	store.Apply(changes...)
	return store
}

func benchPeer(service, i int) Peer {
	var addr [4]byte
	binary.BigEndian.PutUint32(addr[:], 10<<24+uint32(service*1000+i))
	return Peer{
		Namespace: "shop", Service: fmt.Sprintf("web-%d", service), Hostname: fmt.Sprintf("web-%d-%d", service, i),
		Addrs: []netip.Addr{netip.AddrFrom4(addr)}, Ports: []Port{{"http", "tcp", 8080}},
	}
}

// One peer of a service of 100 changes, in zones of different sizes: the cost is that of the service.
func BenchmarkApply(b *testing.B) {
	apply := func(name string, n int, ranges ...string) {
		b.Run(name, func(b *testing.B) {
			store := fillStore(newReverseStore(b, ranges, "peers.test."), n)
			full, _ := store.View().Object("endpointslice/shop/web-0")
			less := full
			less.Peers = full.Peers[:99]
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				store.Apply([]Change{less, full}[i%2])
			}
		})
	}
	for _, n := range []int{100, 10_000, 100_000} {
		apply(fmt.Sprintf("peers=%d", n), n)
	}
	apply("peers=100000/reverse=8", 100_000, "10.0.0.0/8")
	apply("peers=100000/reverse=9", 100_000, "10.0.0.0/9", "10.128.0.0/9")
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		view := fill(b, n).View()
		for text, rrtype := range map[string]uint16{
			"web-0.shop.svc.peers.test.": dns.TypeA, "10-0-0-1.shop.pod.peers.test.": dns.TypeA,
			"nobody.shop.svc.peers.test.": dns.TypeA,
		} {
			name := mustName(b, text)
			b.Run(fmt.Sprintf("peers=%d/%s", n, text), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					view.Lookup(name, rrtype)
				}
			})
		}
	}
}

// Reverse look-ups, and a forward one beside many reverse zones.
func BenchmarkLookupReverse(b *testing.B) {
	for mode, ranges := range map[string][]string{
		"zones=1": nil, "zones=2": {"10.0.0.0/8"}, "zones=257": {"10.0.0.0/9", "10.128.0.0/9"},
	} {
		view := fillStore(newReverseStore(b, ranges, "peers.test."), 100_000).View()
		for _, text := range []string{"1.0.0.10.in-addr.arpa.", "1.0.0.11.in-addr.arpa.", "web-0.shop.svc.peers.test."} {
			name := mustName(b, text)
			b.Run(mode+"/"+text, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					view.Lookup(name, dns.TypePTR)
				}
			})
		}
	}
}
