package resolver

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// opt is what an OPT record of a query says (RFC 6891 §6.1).
type opt struct {
	size    int // octets of a UDP reply that the client takes
	version uint8
	do      bool // RFC 3225 §3
}

// flagDO is the DO bit in the TTL of an OPT record.
const flagDO = 1 << 15

// readOPT reads the fixed part of an OPT record, from the type to the length of the RDATA.
func readOPT(fixed []byte) *opt {
	ttl := binary.BigEndian.Uint32(fixed[4:])
	return &opt{
		size:    int(binary.BigEndian.Uint16(fixed[2:])),
		version: uint8(ttl >> 16),
		do:      ttl&flagDO != 0,
	}
}

// wellFormedOptions tells whether the RDATA of an OPT record is a row of whole options. What they say does not matter:
// unknown options are ignored (RFC 6891 §6.1.2), and we know none.
func wellFormedOptions(rdata []byte) bool {
	for len(rdata) > 0 {
		if len(rdata) < 4 {
			return false
		}
		end := 4 + int(binary.BigEndian.Uint16(rdata[2:]))
		if end > len(rdata) {
			return false
		}
		rdata = rdata[end:]
	}
	return true
}

// replyOPT returns the OPT record of the reply: one exactly if the query had one (RFC 6891 §7), and nil otherwise.
func (p messagePath) replyOPT(q *query, a *answer) *dns.OPT {
	if q.opt == nil {
		return nil
	}
	o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	o.SetUDPSize(uint16(p.maxUDPSize))
	o.SetExtendedRcode(uint16(a.rcode))
	if q.opt.do {
		o.SetDo()
	}
	if a.extended != nil {
		o.Option = append(o.Option, a.extended)
	}
	return o
}

// limit returns how many octets the reply may have.
func (p messagePath) limit(q *query, over proto) int {
	switch {
	case over != udp:
		return dns.MaxMsgSize
	case q.opt == nil:
		return dns.MinMsgSize // RFC 1035 §4.2.1
	}
	return min(max(q.opt.size, dns.MinMsgSize), p.maxUDPSize) // RFC 6891 §6.2.3, §6.2.5
}

// maxExtraText keeps a negative reply within 512 octets, whatever objects are called.
const maxExtraText = 160 // octets

// excluded says why a name does not exist: the first exclusion at it, and how many more there are (RFC 8914 §4.1). It
// returns nil if there is none.
func excluded(at []*zone.Exclusion) *dns.EDNS0_EDE {
	if len(at) == 0 {
		return nil
	}
	text := at[0].String()
	others := 0
	for i := 1; i < len(at); i++ {
		if !at[i].SameText(at[i-1]) {
			others++
		}
	}
	more := ""
	if others > 0 {
		more = fmt.Sprintf(", and %d more", others)
	}
	// Objects in files may be called anything; the text is UTF-8 (RFC 8914 §2), and for people to read.
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxExtraText {
		text = strings.ToValidUTF8(text[:maxExtraText], "") + "…"
	}
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: text + more}
}

// The extended errors (RFC 8914 §4.15, §4.21).
func notReady() *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady, ExtraText: "not synced yet"}
}

func notAuthoritative() *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotAuthoritative}
}
