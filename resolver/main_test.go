package resolver

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"peerdns/zone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustName(t testing.TB, s string) zone.Name {
	t.Helper()
	name, err := zone.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// newStore returns a store that is not synced yet.
func newStore(t testing.TB, apex string) *zone.Store {
	t.Helper()
	store, err := zone.NewStore(zone.Config{
		Zones:       []zone.Name{mustName(t, apex)},
		TTL:         5,
		NegativeTTL: 2,
		NameServer:  []netip.Addr{netip.MustParseAddr("192.0.2.253"), netip.MustParseAddr("2001:db8::253")},
		Serial:      1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// peer makes a peer of namespace shop with the ports http (tcp, 80) and an unnamed 9000.
func peer(service, hostname string, addrs ...string) zone.Peer {
	p := zone.Peer{Namespace: "shop", Service: service, Hostname: hostname, Ports: []zone.Port{
		{Name: "http", Protocol: "tcp", Number: 80}, {Protocol: "tcp", Number: 9000},
	}}
	for _, addr := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(addr))
	}
	return p
}

// peersOf makes n peers of a service; each has one IPv4 and one IPv6 address if v6 is set, and a hostname then.
func peersOf(service string, n int, v6 bool) zone.Change {
	change := zone.Change{Object: service}
	for i := range n {
		addrs := []string{netip.AddrFrom4([4]byte{192, 0, byte(2 + i/250), byte(1 + i%250)}).String()}
		hostname := ""
		if v6 {
			hostname = fmt.Sprintf("%s-%d", service, i)
			addrs = append(addrs, fmt.Sprintf("2001:db8::%x", i+1))
		}
		change.Peers = append(change.Peers, peer(service, hostname, addrs...))
	}
	return change
}

// shop returns the zone that most tests ask: two peers of web, of which one has both families, and two of db.
func shop(t testing.TB) *zone.Store {
	t.Helper()
	store := newStore(t, "peers.test.")
	store.Apply(
		zone.Change{Object: "web", Peers: []zone.Peer{
			peer("web", "", "192.0.2.1", "2001:db8::1"), peer("web", "", "192.0.2.2"),
		}},
		zone.Change{Object: "db", Peers: []zone.Peer{
			peer("db", "db-0", "192.0.2.11", "2001:db8::11"), peer("db", "db-1", "192.0.2.12"),
		}},
	)
	return store
}

// city returns the zone of shop with services too large for one message or another.
func city(t testing.TB) *zone.Store {
	t.Helper()
	store := shop(t)
	store.Apply(peersOf("six", 6, true), peersOf("crowd", 300, true), peersOf("city", 6000, false))
	return store
}

func question(name string, rrtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, rrtype)
}

func packed(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	msg, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func unpacked(t testing.TB, msg []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(msg); err != nil {
		t.Fatalf("the reply does not unpack: %v\n%x", err, msg)
	}
	return m
}
