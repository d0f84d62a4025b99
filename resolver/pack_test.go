package resolver

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// At every size the reply fits, says TC exactly if an answer is missing, has as many as fit, and has no additional
// records before all answers are in.
func TestEverySizeHoldsAllThatFits(t *testing.T) {
	store := newStore(t, "peers.test.")
	// Several peers share a hostname: the addresses of one target are there all or not at all.
	trio := zone.Change{Object: "trio"}
	for i := range byte(60) {
		trio.Peers = append(trio.Peers, peer("trio", string('a'+i%20), netip.AddrFrom4([4]byte{192, 0, 2, i}).String()))
	}
	store.Apply(peersOf("web", 200, false), peersOf("db", 20, true), trio)
	path := messagePath{maxUDPSize: 4096}
	for _, c := range []struct {
		name              string
		rrtype            uint16
		answers, extras   int // records if there is room
		answerLen, setLen int // octets of the largest answer, and of the largest additional RRset
	}{
		{"web.shop.svc.peers.test.", dns.TypeA, 200, 0, 16, 0},
		{"db.shop.svc.peers.test.", dns.TypeSRV, 40, 40, 18 + 30, 28},
		{"_http._tcp.trio.shop.svc.peers.test.", dns.TypeSRV, 20, 60, 18 + 28, 3 * 16},
		{"web.shop.svc.peers.test.", dns.TypeMX, 0, 0, 0, 0},
	} {
		most := 0
		for size := dns.MinMsgSize; size <= 4096; size++ {
			msg := packed(t, question(c.name, c.rrtype).SetEdns0(uint16(size), false))
			reply, _ := path.reply(store.View(), msg, occasion{})
			checkWhole(t, reply)
			m := unpacked(t, reply)
			answers, extras := len(m.Answer), len(m.Extra)-1
			whole := answers == c.answers
			fault := ""
			switch {
			case len(reply) > size:
				fault = "too large"
			case int(binary.BigEndian.Uint16(reply[6:])) != answers || int(binary.BigEndian.Uint16(reply[10:])) != extras+1:
				fault = "the header counts other records"
			case m.Truncated == whole:
				fault = "TC does not say whether all answers are there"
			case !whole && extras > 0:
				fault = "additional records displace answers"
			case !whole && len(reply)+c.answerLen <= size:
				fault = "one more answer would fit"
			case whole && extras < c.extras && len(reply)+c.setLen <= size:
				fault = "one more additional RRset would fit"
			case c.setLen == 3*16 && extras%3 != 0:
				fault = "an additional RRset is cut"
			case answers+extras < most:
				fault = "a smaller size held more"
			}
			if fault != "" {
				t.Fatalf("%s %s in %d octets: %s: %d octets, %d answers, %d additional, TC %t",
					c.name, dns.Type(c.rrtype), size, fault, len(reply), answers, extras, m.Truncated)
			}
			most = answers + extras
		}
		if most != c.answers+c.extras {
			t.Errorf("%s %s: %d records in 4096 octets, want %d", c.name, dns.Type(c.rrtype), most, c.answers+c.extras)
		}
	}
}

// What musl to 1.2.3 and Go take without asking again.
func TestTwentyNinePeersFitWithoutEDNS(t *testing.T) {
	store := newStore(t, "cluster.local.")
	store.Apply(peersOf("web", 29, false))
	reply, _ := messagePath{maxUDPSize: DefaultMaxUDPSize}.reply(store.View(),
		packed(t, question("web.shop.svc.cluster.local.", dns.TypeA)), occasion{})
	if m := unpacked(t, reply); len(m.Answer) != 29 || m.Truncated || len(reply) > 512 {
		t.Errorf("%d of 29 answers in %d octets, TC %t", len(m.Answer), len(reply), m.Truncated)
	}
}

// SRV targets are never compressed (RFC 2782); the names of SOA, which are, save a negative answer under a long apex.
func TestCompression(t *testing.T) {
	apex := zone.Name("")
	for range 3 {
		apex += zone.Name([]byte{63}) + zone.Name(make([]byte, 63))
	}
	store, err := zone.NewStore(zone.Config{Zones: []zone.Name{apex + zone.Root}})
	if err != nil {
		t.Fatal(err)
	}
	store.Apply(zone.Change{Object: "web", Peers: []zone.Peer{peer("web", "", "192.0.2.1")}})
	name, err := (apex + zone.Root).Child("nosuch")
	if err != nil {
		t.Fatal(err)
	}
	path := messagePath{maxUDPSize: DefaultMaxUDPSize}
	reply, _ := path.reply(store.View(), packed(t, question(name.String(), dns.TypeA)), occasion{})
	if m := unpacked(t, reply); len(m.Ns) != 1 || m.Truncated {
		t.Errorf("a negative answer under a long apex: %d octets, TC %t", len(reply), m.Truncated)
	}

	query := packed(t, question("web.shop.svc.peers.test.", dns.TypeSRV))
	reply, _ = path.reply(shop(t).View(), query, occasion{})
	srv := unpacked(t, reply).Answer[0].(*dns.SRV)
	target := string(mustName(t, srv.Target))
	if rdata := len(query) + minRecordLen; string(reply[rdata+6:rdata+6+len(target)]) != target {
		t.Errorf("the target %s is not there in full: %q", srv.Target, reply[rdata:])
	}
}

// Over TCP a set is whole up to 65,535 octets; what exceeds them is cut at a whole record, with TC, and counted.
func TestLargeSetsOverTCP(t *testing.T) {
	store := newStore(t, "peers.test.")
	store.Apply(peersOf("large", 3000, false), peersOf("vast", 6000, false))
	s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, store)
	ask := func(service string, over proto) (m *dns.Msg) {
		msg := packed(t, question(service+".shop.svc.peers.test.", dns.TypeA))
		s.answer(msg, s.occasion(testClient, over), nil, nil, func(reply []byte) {
			checkWhole(t, reply)
			m = unpacked(t, reply)
		})
		return m
	}
	if m := ask("large", tcp); len(m.Answer) != 3000 || m.Truncated {
		t.Errorf("3,000 peers: %d answers, TC %t", len(m.Answer), m.Truncated)
	}
	if m := ask("vast", tls); len(m.Answer) < 4000 || len(m.Answer) == 6000 || !m.Truncated {
		t.Errorf("6,000 peers: %d answers, TC %t", len(m.Answer), m.Truncated)
	}
	ask("large", udp)
	ask("vast", udp)
	if got := s.Truncated(); got["udp"] != 2 || got["tcp"] != 0 || got["tls"] != 1 {
		t.Errorf("counted %v", got)
	}
}
