package resolver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// The examples of RFC 9018, appendix A, with an address of either family.
func TestCookiesOfTheRFC(t *testing.T) {
	for _, test := range []struct {
		k0, k1         uint64
		client, cookie string
		at             int64
	}{
		{0x3fa4b2a6e573e9e5, 0xcfbf379e84dce748, "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", 1559731985},
		{0xb178b64493df3bdd, 0x15a7fc60cbf5a685, "2001:db8:220:1:59de:d0f4:8769:82b8", "22681ab97d52c298010000005cf7c57926556bd0934c72f8", 1559741817},
	} {
		s := &secret{k0: test.k0, k1: test.k1}
		got := fmt.Sprintf("%x", s.cookie(unhex(t, test.cookie)[:8], netip.MustParseAddr(test.client), time.Unix(test.at, 0)))
		if got != test.cookie {
			t.Errorf("client %s: got %s, want %s", test.client, got, test.cookie)
		}
	}
}

func unhex(t *testing.T, digits string) []byte {
	t.Helper()
	var octets []byte
	if _, err := fmt.Sscanf(digits, "%x", &octets); err != nil {
		t.Fatal(err)
	}
	return octets
}

// A cookie comes back as long as it is young, ours and this client's; else there is a new one.
func TestCookiesAreRenewed(t *testing.T) {
	start := time.Unix(1e9, 0)
	client, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, test := range []struct {
		name   string
		later  time.Duration
		client netip.Addr
		change func([]byte) []byte
		same   bool
	}{
		{"at once", 0, client, slices.Clone[[]byte], true},
		{"29 minutes later", 29 * time.Minute, client, slices.Clone[[]byte], true},
		{"30 minutes later", 30 * time.Minute, client, slices.Clone[[]byte], false},
		{"from 4 minutes ahead", -4 * time.Minute, client, slices.Clone[[]byte], true},
		{"from 6 minutes ahead", -6 * time.Minute, client, slices.Clone[[]byte], false},
		{"another client's", time.Second, other, slices.Clone[[]byte], false},
		{"IPv4 written as IPv6", time.Second, netip.MustParseAddr("::ffff:192.0.2.1"), slices.Clone[[]byte], true},
		{"of another version", time.Second, client, func(c []byte) []byte { c[8] = 2; return c }, false},
		{"with a reserved bit", time.Second, client, func(c []byte) []byte { c[9] = 1; return c }, false},
		{"with another hash", time.Second, client, func(c []byte) []byte { c[23]++; return c }, false},
		{"with another client's part", time.Second, client, func(c []byte) []byte { c[0]++; return c }, false},
		{"longer", time.Second, client, func(c []byte) []byte { return append(c, 0) }, false},
		{"under an older secret", secretLife, client, slices.Clone[[]byte], false},
	} {
		c := newCookies(start)
		given := test.change(slices.Clone(c.reply([]byte("clientpt"), client, start)))
		got := c.reply(given, test.client, start.Add(test.later))
		if same := string(got) == string(given); same != test.same {
			t.Errorf("%s: came back %t, want %t", test.name, same, test.same)
		}
		if len(got) != 24 || string(got[:8]) != string(given[:8]) {
			t.Errorf("%s: got %x, want the client's part and 16 octets", test.name, got)
		}
		if again := c.reply(got, test.client, start.Add(test.later)); string(again) != string(got) {
			t.Errorf("%s: the reply %x is not good itself", test.name, got)
		}
	}
}

// Each peer is first in its turn, the others follow in their order, and their addresses come in that order too.
func TestAnswersRotate(t *testing.T) {
	store := newStore(t, "peers.test.")
	store.Apply(peersOf("web", 15, true))
	for rrtype, name := range map[uint16]string{
		dns.TypeA: "web.shop.svc.peers.test.", dns.TypeAAAA: "web.shop.svc.peers.test.",
		dns.TypeSRV: "_http._tcp.web.shop.svc.peers.test.",
	} {
		msg := packed(t, question(name, rrtype).SetEdns0(4096, false))
		first := map[string]int{}
		var inOrder []string
		for turn := range uint32(150) {
			path := messagePath{maxUDPSize: 4096}
			reply, _ := path.reply(store.View(), msg, occasion{turn: turn})
			m := unpacked(t, reply)
			var got []string
			for _, rr := range m.Answer {
				got = append(got, rr.String())
			}
			if turn == 0 {
				inOrder = got
			}
			if at := int(turn) % 15; !slices.Equal(got, slices.Concat(inOrder[at:], inOrder[:at])) {
				t.Fatalf("turn %d: got\n%s", turn, strings.Join(got, "\n"))
			}
			if srv, ok := m.Answer[0].(*dns.SRV); ok && m.Extra[0].Header().Name != srv.Target {
				t.Errorf("turn %d: the first address is that of %s, want %s", turn, m.Extra[0].Header().Name, srv.Target)
			}
			first[got[0]]++
		}
		for rr, n := range first {
			if n != 10 {
				t.Errorf("%s is first in %d of 150 replies, want 10", rr, n)
			}
		}
	}
}

// Over the sockets each of 15 peers is first in a 15th of the replies, give or take 15 %, also when questions of two
// types alternate as clients ask them. With 15,000 replies that is 5 standard deviations.
func TestTheTurnIsFair(t *testing.T) {
	s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, newStore(t, "peers.test."))
	const peers, replies = 15, 15000
	for parity := range 2 {
		first := make([]int, peers)
		for i := range 2 * replies {
			if on := s.occasion(testClient, udp); i%2 == parity {
				first[on.turn%peers]++
			}
		}
		for peer, n := range first {
			if n < replies/peers*85/100 || n > replies/peers*115/100 {
				t.Errorf("peer %d is first in %d of %d replies", peer, n, replies)
			}
		}
	}
	s.sorted = true
	if on := s.occasion(testClient, udp); on.turn != 0 {
		t.Errorf("sorted: got turn %d, want 0", on.turn)
	}
}

// What comes from a zone that may be old says so, and why a peer is left out all the same.
func TestStaleAnswersSaySo(t *testing.T) {
	old := ""
	p := messagePath{maxUDPSize: 1232, stale: func() string { return old }}
	store := shop(t)
	left := peer("web", "left", "192.0.2.77")
	left.Pod = "left"
	store.Apply(zone.Change{Object: "x", Excluded: []zone.Exclusion{{Peer: left, Reason: zone.NotReady}}})
	for _, test := range []struct{ name, fresh, stale string }{
		{"web.shop.svc.peers.test.", "", "3 2m"},
		{"nosuch.shop.svc.peers.test.", "", "19 2m"},
		{"left.web.shop.svc.peers.test.", "0 pod shop/left excluded: not-ready", "0 pod shop/left excluded: not-ready; 19 2m"},
		{"other.test.", "20 ", "20 "},
	} {
		for text, want := range map[string]string{"": test.fresh, "2m": test.stale} {
			old = text
			reply, _ := p.reply(store.View(), packed(t, question(test.name, dns.TypeA).SetEdns0(1232, false)), occasion{})
			if got := extendedError(unpacked(t, reply)); got != want {
				t.Errorf("%s, stale %q: got %q, want %q", test.name, text, got, want)
			}
		}
	}
}

func TestTheReasonForNoAnswerYet(t *testing.T) {
	p := messagePath{maxUDPSize: 1232, notReady: func() string { return "waits for pods: \x1bforbidden" }}
	reply, _ := p.reply(newStore(t, "peers.test.").View(), packed(t, question("peers.test.", dns.TypeA).SetEdns0(1232, false)), occasion{})
	if got := extendedError(unpacked(t, reply)); got != "14 waits for pods: ?forbidden" {
		t.Errorf("got %q", got)
	}
}

// An extended error gives way to the SOA; with every option the rest of a negative reply fits in 512 octets.
func TestOptionsGiveWay(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 61)+".", 3) + "web.shop.svc.peers.test."
	p := testPath()
	p.serverID = strings.Repeat("i", MaxServerID)
	p.notReady = func() string { return strings.Repeat("why ", 100) }
	m := question(long, dns.TypeA).SetEdns0(512, false)
	m.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "2464c4abcf10c957"},
	}
	store := shop(t)
	excluded := peer("web", strings.Repeat("x", 61), "192.0.2.77")
	excluded.Pod = strings.Repeat("p", 200)
	store.Apply(zone.Change{Object: "x", Excluded: []zone.Exclusion{{Peer: excluded, Reason: zone.NotReady}}})
	for name, texts := range map[string]int{long: 0, strings.Repeat("x", 61) + ".web.shop.svc.peers.test.": 1} {
		m.Question[0].Name = name
		reply, _ := p.reply(store.View(), packed(t, m), occasion{client: testClient, now: testTime})
		got := unpacked(t, reply)
		if len(reply) > 512 || got.Truncated || len(got.Ns) != 1 || len(got.IsEdns0().Option) != 2+texts {
			t.Errorf("%d octets: %s", len(reply), got)
		}
	}
}
