package resolver

import (
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

func TestAllowList(t *testing.T) {
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, s := range list {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	for _, c := range []struct {
		allow  []netip.Prefix
		client string
		want   bool
	}{
		{nil, "192.0.2.1", true},
		{prefixes("192.0.2.0/25"), "192.0.2.127", true},
		{prefixes("192.0.2.0/25"), "192.0.2.128", false},
		{prefixes("192.0.2.0/25"), "::ffff:192.0.2.127", true},
		{prefixes("192.0.2.0/25"), "::ffff:192.0.2.128", false},
		{prefixes("::/0"), "192.0.2.1", false},
		{prefixes("::/0"), "::ffff:192.0.2.1", false},
		{prefixes("0.0.0.0/0"), "2001:db8::1", false},
		{prefixes("192.0.2.1/32", "2001:db8::/64"), "2001:db8::ffff", true},
		{prefixes("192.0.2.1/32", "2001:db8::/64"), "2001:db8:0:1::", false},
		{prefixes("fe80::/10"), "fe80::1%eth0", true},
	} {
		if got := allowList(c.allow).has(netip.MustParseAddr(c.client)); got != c.want {
			t.Errorf("%v, %s: got %t", c.allow, c.client, got)
		}
	}
	if _, err := Listen(Options{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Allow: make([]netip.Prefix, 1),
	}, shop(t)); err == nil {
		t.Error("no prefix: no error")
	}
}

// askAs asks from an address of this machine.
func askAs(t *testing.T, network, client, server string, m *dns.Msg) *dns.Msg {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: patience}
	if network == "udp" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(client)}
	}
	exchange := dns.Client{Net: network, Timeout: patience, Dialer: &dialer}
	reply, _, err := exchange.Exchange(m, server)
	if err != nil {
		t.Fatalf("%s from %s: %v", network, client, err)
	}
	return reply
}

// Strangers are told so at once, whatever they ask and whether or not there is anything to say yet. The server's
// sockets are of both families, so that its IPv4 clients are IPv4-mapped.
func TestOthersAreRefused(t *testing.T) {
	store := newStore(t, "peers.test.") // never synced
	s := serveOptions(t, store, Options{
		Listen: []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 0)},
		Allow:  []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Addrs()[0].Port()).String()
	chaos := question("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	for _, m := range []*dns.Msg{
		question("Web.shop.svc.peers.test.", dns.TypeA), question("nosuch.peers.test.", dns.TypeSRV),
		question("web.other.test.", dns.TypeAAAA), question(".", dns.TypeNS), question("peers.test.", dns.TypeAXFR), chaos,
	} {
		for _, network := range []string{"udp", "tcp"} {
			for _, opt := range []bool{false, true} {
				want, m := "no OPT", m.Copy()
				if opt {
					m.SetEdns0(1232, false)
					want = "18 "
				}
				reply := askAs(t, network, "127.0.0.2", server, m)
				if reply.Rcode != dns.RcodeRefused || reply.Authoritative || reply.Question[0] != m.Question[0] ||
					len(reply.Answer)+len(reply.Ns) > 0 {
					t.Errorf("%s: got\n%s", network, reply)
				}
				if got := extendedError(reply); got != want {
					t.Errorf("%s: extended error %q, want %q", network, got, want)
				}
			}
		}
	}
	odd := question("web.shop.svc.peers.test.", dns.TypeA)
	odd.Opcode = dns.OpcodeStatus
	if reply := askAs(t, "udp", "127.0.0.2", server, odd); reply.Rcode != dns.RcodeNotImplemented {
		t.Errorf("got\n%s", reply)
	}
	store.Apply()
	if reply := askAs(t, "udp", "127.0.0.1", server, question("nosuch.peers.test.", dns.TypeA)); reply.Rcode != dns.RcodeNameError {
		t.Errorf("one of ours: got\n%s", reply)
	}
	if reply := askAs(t, "tcp", "127.0.0.2", server, question("nosuch.peers.test.", dns.TypeA)); reply.Rcode != dns.RcodeRefused {
		t.Errorf("a stranger: got\n%s", reply)
	}
}

// Forwarders probe with ". NS" (CoreDNS's health check) and take a server without a reply for dead.
func TestTheRootIsRefusedAtOnceBeforeTheFirstSync(t *testing.T) {
	s := serve(t, newStore(t, "peers.test."), "127.0.0.1:0")
	for _, network := range []string{"udp", "tcp"} {
		m := question(".", dns.TypeNS)
		reply := askAs(t, network, "127.0.0.1", s.Addrs()[0].String(), m)
		if reply.Rcode != dns.RcodeRefused || reply.Question[0] != m.Question[0] {
			t.Errorf("%s: got\n%s", network, reply)
		}
	}
}
