package resolver

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// Whatever comes: no panic, and a reply that fits, unpacks to its last octet and has the identifier and the question;
// and what miekg/dns can read as a plain question of ours is no FORMERR.
func FuzzReply(f *testing.F) {
	for _, file := range []string{"testdata/replies.txt", "testdata/form.txt", "testdata/options.txt"} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			kind, args, _ := strings.Cut(strings.TrimSpace(line), " ")
			if kind == "dig" || kind == "raw" {
				msg, over := parseQuestion(f, kind, strings.Fields(args))
				f.Add(msg, uint8(over))
			}
		}
	}
	views := map[bool]*zone.View{true: city(f).View(), false: newStore(f, "peers.test.").View()}
	path := testPath()
	f.Fuzz(func(t *testing.T, msg []byte, transport uint8) {
		over := proto(transport % 3)
		for synced, view := range views {
			reply, final := path.reply(view, msg, occasion{over: over, now: time.Unix(1e9, 0), turn: uint32(len(msg)) * 7919})
			if !final && (synced || unpacked(t, reply).Rcode != dns.RcodeServerFailure) {
				t.Errorf("synced %t, but not final", synced)
			}
			if reply == nil {
				if len(msg) >= headerLen && msg[2]&0x80 == 0 {
					t.Error("a query without a reply")
				}
				continue
			}
			if len(reply) > sizeFor(msg, over) {
				t.Errorf("%d octets, limit %d", len(reply), sizeFor(msg, over))
			}
			checkReply(t, msg, reply)
			checkWhole(t, reply)
			checkForm(t, msg, reply)
		}
	})
}

// sizeFor is the limit as miekg/dns understands the query, at least: what it cannot read may be FORMERR only.
func sizeFor(msg []byte, over proto) int {
	m := new(dns.Msg)
	switch {
	case over != udp:
		return dns.MaxMsgSize
	case m.Unpack(msg) != nil || m.IsEdns0() == nil:
		return dns.MinMsgSize
	}
	return min(max(int(m.IsEdns0().UDPSize()), dns.MinMsgSize), DefaultMaxUDPSize)
}

// checkWhole checks that the records are as many as the header says and end where the reply ends.
func checkWhole(t *testing.T, reply []byte) {
	t.Helper()
	off := headerLen
	for range binary.BigEndian.Uint16(reply[4:]) {
		_, end, err := dns.UnpackDomainName(reply, off)
		if err != nil {
			t.Fatal(err)
		}
		off = end + 4
	}
	for i := 6; i <= 10; i += 2 {
		for range binary.BigEndian.Uint16(reply[i:]) {
			before := off
			var err error
			if _, off, err = dns.UnpackRR(reply, off); err != nil || off == before {
				t.Fatalf("a record at %d: %v", before, err)
			}
		}
	}
	if off != len(reply) {
		t.Errorf("%d octets after the last record", len(reply)-off)
	}
}

// checkForm checks that a message which is exactly how miekg/dns would write its own reading of it gets an answer.
func checkForm(t *testing.T, msg, reply []byte) {
	t.Helper()
	m := new(dns.Msg)
	if m.Unpack(msg) != nil || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 || len(m.Answer)+len(m.Ns)+len(m.Extra) > 0 {
		return
	}
	again, err := m.Pack()
	if err != nil || string(again) != string(msg) {
		return
	}
	if rcode := int(reply[3] & 0xF); rcode == dns.RcodeFormatError || rcode == dns.RcodeNotImplemented {
		t.Errorf("rcode %d to %s", rcode, m)
	}
}
