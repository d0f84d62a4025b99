package resolver

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"peerdns/zone"
)

var update = flag.Bool("update", false, "write testdata anew from what the code says")

// TestReplies reads testdata/*.txt: blocks of comment, question and reply. A question is a line as for dig, without
// EDNS unless it is asked for, or a raw message of hexadecimal digits and <names>; `go test -update` writes the replies.
func TestReplies(t *testing.T) {
	views := map[string]*zone.View{
		"testdata/replies.txt": city(t).View(), "testdata/form.txt": shop(t).View(),
		"testdata/options.txt": shop(t).View(), "testdata/early.txt": newStore(t, "peers.test.").View(),
	}
	for file, view := range views {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				var asked []byte
				over := udp
				for line := range strings.Lines(block) {
					line = strings.TrimSpace(line)
					if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "dig ") && !strings.HasPrefix(line, "raw ") {
						break
					}
					fmt.Fprintln(&got, line)
					if kind, args, _ := strings.Cut(line, " "); kind != "#" {
						asked, over = parseQuestion(t, kind, strings.Fields(args))
					}
				}
				if asked == nil {
					t.Fatalf("no question in\n%s", block)
				}
				reply, final := testPath().reply(view, asked, occasion{client: testClient, over: over, now: testTime})
				got.WriteString(replyText(t, asked, reply, final) + "\n")
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.TrimSpace(got.String())+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := gocmp.Diff(strings.Split(string(text), "\n"), strings.Split(strings.TrimSpace(got.String())+"\n", "\n")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

var (
	testClient = netip.MustParseAddr("198.51.100.100")
	testTime   = time.Unix(1559731985, 0)
)

// testPath returns a messagePath that does all it can, with the secret of the first example of RFC 9018, appendix A.
func testPath() messagePath {
	secret := &secret{k0: 0x3fa4b2a6e573e9e5, k1: 0xcfbf379e84dce748, since: testTime}
	p := messagePath{maxUDPSize: DefaultMaxUDPSize, serverID: "peerdns-0", version: "peerdns 1.0", cookies: new(cookies)}
	p.cookies.secret.Store(secret)
	return p
}

func hasCookie(m *dns.Msg) bool {
	return m.IsEdns0() != nil && slices.ContainsFunc(m.IsEdns0().Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0COOKIE })
}

func parseQuestion(t testing.TB, kind string, args []string) ([]byte, proto) {
	t.Helper()
	if kind == "raw" {
		var msg []byte
		for _, arg := range args {
			part, err := hex.DecodeString(arg)
			if name, ok := strings.CutPrefix(arg, "<"); ok {
				part = make([]byte, 255)
				var end int
				end, err = dns.PackDomainName(strings.TrimSuffix(name, ">"), part, 0, nil, false)
				part = part[:end]
			}
			if err != nil {
				t.Fatalf("%s: %v", arg, err)
			}
			msg = append(msg, part...)
		}
		return msg, udp
	}
	m := question(args[0], typeNamed(args[1]))
	m.Id = 1
	over := udp
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "CH", "ANY":
			m.Question[0].Qclass = dns.StringToClass[key]
		case "+tcp":
			over = tcp
		case "+tls":
			over = tls
		case "+norec":
			m.RecursionDesired = false
		case "+flags": // those that mean nothing to us
			m.AuthenticatedData, m.CheckingDisabled, m.Zero, m.RecursionAvailable, m.Authoritative = true, true, true, true, true
		case "+edns":
			m.SetEdns0(uint16(cmp.Or(n, 1232)), false)
		case "+dnssec":
			m.SetEdns0(1232, true)
		case "+option": // code:hexadecimal digits
			if m.IsEdns0() == nil {
				m.SetEdns0(1232, false)
			}
			code, digits, _ := strings.Cut(value, ":")
			number, _ := strconv.Atoi(code)
			data, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: uint16(number), Data: data})
		case "+opcode":
			m.Opcode = n
		case "+header-only":
			m.Question = nil
		case "+tsig":
			m.SetTsig("unknown.", dns.HmacSHA256, 300, 1e9)
			m.IsTsig().OrigId, m.IsTsig().MACSize, m.IsTsig().MAC = 1, 32, strings.Repeat("ab", 32)
		case "+version":
			if m.IsEdns0() == nil {
				m.SetEdns0(1232, false)
			}
			m.IsEdns0().SetVersion(uint8(n))
		case "+ednsflags":
			m.SetEdns0(1232, false)
			m.IsEdns0().SetZ(uint16(n))
		default:
			t.Fatalf("unknown %s", arg)
		}
	}
	return packed(t, m), over
}

// replyText prints a reply, and checks what holds of every reply.
func replyText(t *testing.T, asked, reply []byte, final bool) string {
	t.Helper()
	if reply == nil {
		return "no reply\n"
	}
	checkReply(t, asked, reply)
	m := unpacked(t, reply)
	var b strings.Builder
	flags := strings.TrimPrefix(strings.SplitAfter(m.MsgHdr.String(), ";; flags:")[1], ";; ")
	fmt.Fprintf(&b, "%s%s id %d, %d octets%s\n", cmp.Or(map[int]string{16: "BADVERS"}[m.Rcode], dns.RcodeToString[m.Rcode]),
		strings.TrimSuffix(flags, ";"), m.Id, len(reply), map[bool]string{false: ", not final"}[final])
	for _, q := range m.Question {
		fmt.Fprintf(&b, "question %s %s %s\n", q.Name, dns.Class(q.Qclass), dns.Type(q.Qtype))
	}
	for i, section := range [...][]dns.RR{m.Answer, m.Ns, m.Extra} {
		if len(section) > 6 {
			fmt.Fprintf(&b, "%s: %d records\n", [...]string{"answer", "authority", "additional"}[i], len(section))
			section = nil
		}
		for _, rr := range section {
			if o, ok := rr.(*dns.OPT); ok {
				fmt.Fprintf(&b, "opt version %d size %d do %t", o.Version(), o.UDPSize(), o.Do())
				for _, option := range o.Option {
					if padding, ok := option.(*dns.EDNS0_PADDING); ok {
						fmt.Fprintf(&b, " padding of %d octets", len(padding.Padding))
						continue
					}
					fmt.Fprintf(&b, " option %d: %s", option.Option(), option)
				}
				b.WriteByte('\n')
				continue
			}
			fmt.Fprintf(&b, "%s %s\n", [...]string{"answer", "authority", "additional"}[i], strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return b.String()
}

// checkReply checks what holds of every reply to any octets: identifier, opcode, RD and question come back, the
// reserved bits, RA, AD and CD are clear, and there is an OPT only if there was one.
func checkReply(t *testing.T, asked, reply []byte) {
	t.Helper()
	if len(asked) < headerLen || asked[2]&0x80 != 0 {
		t.Fatalf("a reply to what deserves none: %x", reply)
	}
	if !bytes.Equal(asked[:2], reply[:2]) {
		t.Errorf("id %x, want %x", reply[:2], asked[:2])
	}
	if got, want := reply[2]&0xF9, asked[2]&0x79|0x80; got != want {
		t.Errorf("QR, opcode and RD are %02x, want %02x", got, want)
	}
	if reply[3]&0xF0 != 0 {
		t.Errorf("RA, Z, AD and CD are %02x, want 0", reply[3]&0xF0)
	}
	if m := unpacked(t, reply); len(m.Question) == 1 {
		end := headerLen + len(mustName(t, m.Question[0].Name)) + 4
		if !bytes.Equal(asked[headerLen:end], reply[headerLen:end]) {
			t.Errorf("question %x, want %x", reply[headerLen:end], asked[headerLen:end])
		}
		if got := binary.BigEndian.Uint16(reply[6:]); int(got) != len(m.Answer) {
			t.Errorf("ANCOUNT %d, but %d answers", got, len(m.Answer))
		}
	} else if m.Rcode != dns.RcodeFormatError && m.Rcode != dns.RcodeNotImplemented && !hasCookie(m) {
		t.Errorf("%d questions in a reply with rcode %d", len(m.Question), m.Rcode)
	}
}

// typeNamed reads the name of a type, as A or TYPE666 (RFC 3597 §5).
func typeNamed(name string) uint16 {
	if number, ok := strings.CutPrefix(name, "TYPE"); ok {
		n, _ := strconv.Atoi(number)
		return uint16(n)
	}
	return dns.StringToType[name]
}
