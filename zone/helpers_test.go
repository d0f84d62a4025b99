package zone

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
)

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

// allAddrs returns every address that randomAddr can give, and two more.
func allAddrs() []netip.Addr {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.255"), netip.MustParseAddr("2001:db8:1::ffff")}
	for i := range 6 {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	for _, prefix := range []string{"2001:db8:1::", "2001:db8:2::", "0:0:1::", "0:0:2::"} {
		for i := range 3 {
			addrs = append(addrs, netip.MustParseAddr(prefix+strconv.Itoa(i)))
		}
	}
	return addrs
}

func newTestStore(t testing.TB, apexes ...string) *Store {
	t.Helper()
	return newReverseStore(t, nil, apexes...)
}

func newReverseStore(t testing.TB, ranges []string, apexes ...string) *Store {
	t.Helper()
	c := Config{TTL: 5, NegativeTTL: 2, NameServer: []netip.Addr{netip.MustParseAddr("192.0.2.253")}, Serial: 1}
	for _, apex := range apexes {
		c.Zones = append(c.Zones, mustName(t, apex))
	}
	for _, text := range ranges {
		c.Reverse = append(c.Reverse, netip.MustParsePrefix(text))
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
