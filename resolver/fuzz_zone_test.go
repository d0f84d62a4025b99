package resolver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// zoneOf makes a zone of peers, each from four octets.
func zoneOf(t *testing.T, octets []byte) *zone.View {
	t.Helper()
	store := newStore(t, "peers.test.")
	for i := 0; i+4 <= len(octets) && i < 4*200; i += 4 {
		kind, service, host, last := octets[i], octets[i+1]%4, octets[i+2]%8, octets[i+3]
		p := peer(fmt.Sprint("s", service), "", netip.AddrFrom4([4]byte{192, 0, 2, last}).String())
		if kind&1 != 0 {
			p.Addrs = append(p.Addrs, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", last)))
		}
		if kind&2 != 0 {
			p.Hostname = fmt.Sprint("h", host)
		}
		if kind&4 != 0 {
			p.Target = mustName(t, fmt.Sprintf("h%d.s%d.shop.svc.peers.test.", host, service))
		}
		if kind&8 != 0 {
			p.Target = mustName(t, fmt.Sprintf("h%d.example.test.", host))
		}
		if kind&16 != 0 {
			p.Ports = nil
		}
		if kind&32 != 0 {
			p.Service = ""
		}
		c := zone.Change{Object: fmt.Sprint(i)}
		if kind&64 != 0 {
			c.Excluded = []zone.Exclusion{{Peer: p, Reason: zone.NotReady}}
		} else {
			c.Peers = []zone.Peer{p}
		}
		store.Apply(c)
	}
	store.Apply()
	return store.View()
}

// Any question on any zone: the reply packs again, counts what it has, has no record twice, and every SRV target in the
// zone has an address in the same view.
func FuzzAnswersOfAnyZone(f *testing.F) {
	f.Add([]byte{7, 0, 0, 1, 3, 0, 1, 2, 0, 0, 0, 3, 64, 0, 2, 4}, "_http._tcp.s0.shop.svc.peers.test.", uint16(dns.TypeSRV), uint16(1232), byte(1))
	f.Add([]byte{1, 1, 0, 1}, "s1.shop.svc.peers.test.", uint16(dns.TypeANY), uint16(512), byte(0))
	f.Add([]byte{5, 2, 0, 9, 6, 2, 1, 9}, "s2.shop.svc.PEERS.test.", uint16(dns.TypeSRV), uint16(0), byte(2))
	f.Add([]byte{0, 0, 0, 1}, "1.2.0.192.in-addr.arpa.", uint16(dns.TypePTR), uint16(4096), byte(0))
	f.Fuzz(func(t *testing.T, octets []byte, name string, rrtype, size uint16, transport byte) {
		m := question(name, rrtype)
		if size > 0 {
			m.SetEdns0(size, true)
		}
		msg, err := m.Pack()
		if err != nil {
			t.Skip() // no name
		}
		view, over := zoneOf(t, octets), proto(transport%3)
		reply, final := testPath().reply(view, msg, occasion{over: over, turn: uint32(size)})
		if reply == nil || !final {
			t.Fatalf("final %t, %d octets", final, len(reply))
		}
		if limit := sizeFor(msg, over); len(reply) > limit {
			t.Errorf("%d octets, limit %d", len(reply), limit)
		}
		checkReply(t, msg, reply)
		checkWhole(t, reply)
		got := unpacked(t, reply)
		if _, err := got.Pack(); err != nil {
			t.Errorf("the reply does not pack again: %v", err)
		}
		seen := map[string]bool{}
		for _, section := range [...][]dns.RR{got.Answer, got.Ns, got.Extra} {
			for _, rr := range section {
				if rr.Header().Rrtype == dns.TypeOPT {
					continue
				}
				if seen[rr.String()] {
					t.Errorf("twice: %s", rr)
				}
				seen[rr.String()] = true
			}
		}
		apex := mustName(t, "peers.test.")
		for _, rr := range got.Answer {
			srv, ok := rr.(*dns.SRV)
			if !ok {
				continue
			}
			if target := mustName(t, srv.Target); target.In(apex) &&
				view.Lookup(target, dns.TypeA).Outcome != zone.Success && view.Lookup(target, dns.TypeAAAA).Outcome != zone.Success {
				t.Errorf("the target %s does not resolve", srv.Target)
			}
		}
	})
}

// Any octets on a connection, in pieces of any size: it ends, and what comes back is whole replies, at most one for
// each whole question.
func FuzzStream(f *testing.F) {
	ask := func(name string) []byte {
		msg := packed(f, question(name, dns.TypeA))
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
	}
	f.Add(append(ask("web.shop.svc.peers.test."), ask("city.shop.svc.peers.test.")...), byte(1))
	f.Add(ask("web.shop.svc.peers.test.")[:20], byte(7))
	f.Add([]byte{0, 0, 0, 1, 2, 255, 255, 3}, byte(0))
	store := city(f)
	f.Fuzz(func(t *testing.T, octets []byte, piece byte) {
		server := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, store)
		theirs, ours := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.serveStream(halfClosed{ours, &pieces{bytes.NewReader(octets), int(piece) + 1}}, tcp)
		}()
		questions := 0
		for rest := octets; len(rest) >= 2 && len(rest)-2 >= int(binary.BigEndian.Uint16(rest)); questions++ {
			rest = rest[2+int(binary.BigEndian.Uint16(rest)):]
		}
		replies := 0
		for {
			var size [2]byte
			if _, err := io.ReadFull(theirs, size[:]); err != nil {
				break
			}
			reply := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(theirs, reply); err != nil {
				t.Fatalf("a reply in part: %v", err)
			}
			unpacked(t, reply)
			replies++
		}
		<-done
		if replies > questions {
			t.Errorf("%d replies to %d questions", replies, questions)
		}
	})
}

// pieces reads at most so many octets at once.
type pieces struct {
	io.Reader
	most int
}

func (p *pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }
