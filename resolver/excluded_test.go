package resolver

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// ask returns the reply to a question of class IN, with or without OPT.
func ask(t *testing.T, view *zone.View, name string, withOPT bool) *dns.Msg {
	t.Helper()
	question := new(dns.Msg)
	question.SetQuestion(name, dns.TypeA)
	if withOPT {
		question.SetEdns0(512, false)
	}
	packed, err := question.Pack()
	if err != nil {
		t.Fatal(err)
	}
	octets, _ := messagePath{maxUDPSize: DefaultMaxUDPSize}.reply(view, packed, occasion{})
	if len(octets) > 512 {
		t.Errorf("%s: reply of %d octets", name, len(octets))
	}
	reply := new(dns.Msg)
	if err := reply.Unpack(octets); err != nil {
		t.Fatal(err)
	}
	return reply
}

func extendedError(m *dns.Msg) string {
	opt := m.IsEdns0()
	if opt == nil {
		return "no OPT"
	}
	var texts []string
	for _, option := range opt.Option {
		if ede, ok := option.(*dns.EDNS0_EDE); ok {
			texts = append(texts, fmt.Sprint(ede.InfoCode, " ", ede.ExtraText))
		}
	}
	return strings.Join(texts, "; ")
}

func TestANegativeAnswerSaysWhoIsLeftOut(t *testing.T) {
	store := newStore(t, "peers.test.")
	peer := func(pod, hostname, addr string) zone.Peer {
		return zone.Peer{
			Namespace: "shop", Service: "web", Pod: pod, Hostname: hostname, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		}
	}
	odd := peer("\xff\x1b[31m\u202e"+strings.Repeat("ü", 300), "odd", "192.0.2.4")
	store.Apply(zone.Change{
		Object: "a",
		Peers:  []zone.Peer{peer("web-9", "web-9", "192.0.2.9")},
		Excluded: []zone.Exclusion{
			{Peer: peer("web-1", "web-1", "192.0.2.1"), Reason: zone.Terminating},
			{Peer: peer("web-0", "web-1", "192.0.2.2"), Reason: zone.NotReady},
			{Peer: peer("", "nameless", "192.0.2.3"), Reason: zone.NotPinned},
			{Peer: odd, Reason: zone.Failed},
			{Peer: peer("web-5", "web-5", "192.0.2.5"), Reason: zone.Terminating},
			{Peer: peer("web-5", "web-5", "2001:db8::5"), Reason: zone.Terminating},
			{Peer: peer("web-5", "web-5", "2001:db8::6"), Reason: zone.NotPinned},
		},
	})
	for _, test := range []struct {
		name  string
		rcode int
		want  string
	}{
		{"web-1.web.shop.svc.peers.test.", dns.RcodeNameError, "0 pod shop/web-0 excluded: not-ready, and 1 more"},
		{"web-5.web.shop.svc.peers.test.", dns.RcodeNameError, "0 pod shop/web-5 excluded: terminating, and 1 more"},
		{"192-0-2-1.shop.pod.peers.test.", dns.RcodeNameError, "0 pod shop/web-1 excluded: terminating"},
		{"nameless.web.shop.svc.peers.test.", dns.RcodeNameError, "0 endpoint of shop/web at 192.0.2.3 excluded: not-pinned"},
		{"web-9.web.shop.svc.peers.test.", dns.RcodeSuccess, ""},
		{"nobody.web.shop.svc.peers.test.", dns.RcodeNameError, ""},
		{"web.shop.svc.peers.test.", dns.RcodeSuccess, ""},
	} {
		reply := ask(t, store.View(), test.name, true)
		if got := extendedError(reply); got != test.want || reply.Rcode != test.rcode {
			t.Errorf("%s: got %s, extended error %q; want %s, %q", test.name,
				dns.RcodeToString[reply.Rcode], got, dns.RcodeToString[test.rcode], test.want)
		}
		if got := extendedError(ask(t, store.View(), test.name, false)); got != "no OPT" {
			t.Errorf("%s: a query without OPT got %q", test.name, got)
		}
	}
	text := extendedError(ask(t, store.View(), "odd.web.shop.svc.peers.test.", true))
	if !strings.HasPrefix(text, "0 pod shop/??[31m?ü") || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("hostile name of a pod: got %q", text)
	}
}
