package resolver

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// opt is what an OPT record of a query says (RFC 6891 §6.1).
type opt struct {
	size    int // octets of a UDP reply that the client takes
	version uint8
	do      bool // RFC 3225 §3

	nsid      bool   // RFC 5001
	cookie    []byte // RFC 7873; nil for none
	keepalive bool   // RFC 7828
	padding   bool   // RFC 7830
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

// readOptions reads the RDATA of an OPT record. It returns false if that is no row of whole options, or a cookie has
// an impossible length. Options that we do not know are ignored (RFC 6891 §6.1.2).
func (o *opt) readOptions(rdata []byte) bool {
	for len(rdata) > 0 {
		if len(rdata) < 4 {
			return false
		}
		code, end := binary.BigEndian.Uint16(rdata), 4+int(binary.BigEndian.Uint16(rdata[2:]))
		if end > len(rdata) {
			return false
		}
		value := rdata[4:end]
		switch code {
		case dns.EDNS0NSID:
			o.nsid = true
		case dns.EDNS0COOKIE:
			if n := len(value); n != clientCookieLen && (n < 16 || n > 40) {
				return false // RFC 7873 §5.2.2
			}
			if o.cookie == nil { // the first counts (RFC 7873 §5.2)
				o.cookie = value
			}
		case dns.EDNS0TCPKEEPALIVE:
			o.keepalive = true
		case dns.EDNS0PADDING:
			o.padding = true
		}
		rdata = rdata[end:]
	}
	return true
}

// replyOPT returns the OPT record of the reply: one exactly if the query had one (RFC 6891 §7), and nil otherwise. It
// has the options that were asked for; an extended error needs no asking (RFC 8914 §3).
func (p messagePath) replyOPT(q *query, a *answer, on occasion) *dns.OPT {
	if q.opt == nil {
		return nil
	}
	o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	o.SetUDPSize(uint16(p.maxUDPSize))
	o.SetExtendedRcode(uint16(a.rcode))
	if q.opt.do {
		o.SetDo()
	}
	if q.opt.nsid && p.serverID != "" {
		o.Option = append(o.Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: hex.EncodeToString([]byte(p.serverID))})
	}
	if q.opt.cookie != nil && p.cookies != nil {
		cookie := p.cookies.reply(q.opt.cookie, on.client, on.now)
		o.Option = append(o.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(cookie)})
	}
	if q.opt.keepalive && on.over != udp {
		o.Option = append(o.Option, &dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE, Timeout: keepaliveTimeout})
	}
	for _, extended := range a.extended {
		o.Option = append(o.Option, extended)
	}
	if q.opt.padding && on.over == tls {
		o.Option = append(o.Option, new(dns.EDNS0_PADDING)) // how much, pack knows
	}
	return o
}

// keepaliveTimeout is how long a connection may be silent, in units of 100 ms (RFC 7828 §3.1).
const keepaliveTimeout = uint16(idleTimeout / (100 * time.Millisecond))

// paddingBlock is what the length of a padded reply is a multiple of (RFC 8467 §4.1).
const paddingBlock = 468 // octets

// pad sets the length of the padding, if the OPT record has one, so that the message with the record is whole blocks.
func pad(o *dns.OPT, before, limit int) {
	for _, option := range o.Option {
		if padding, ok := option.(*dns.EDNS0_PADDING); ok {
			size := before + dns.Len(o)
			whole := (size + paddingBlock - 1) / paddingBlock * paddingBlock
			padding.Padding = make([]byte, min(whole, limit)-size)
		}
	}
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
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: readable(text) + more}
}

// readable makes a text short, UTF-8 (RFC 8914 §2) and for people to read: objects in files may be called anything.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxExtraText {
		text = strings.ToValidUTF8(text[:maxExtraText], "") + "…"
	}
	return text
}

// The extended errors (RFC 8914 §4.15, §4.19, §4.21).
func (p messagePath) early() *dns.EDNS0_EDE {
	text := "not synced yet"
	if p.notReady != nil {
		text = p.notReady()
	}
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady, ExtraText: readable(text)}
}

// addStale says of what comes from a zone that it may be old (RFC 8914 §4.4, §4.20).
func (p messagePath) addStale(q *query, a *answer) {
	if q.opt == nil || p.stale == nil || !a.authoritative || q.qclass != dns.ClassINET {
		return
	}
	text := p.stale()
	if text == "" {
		return
	}
	code := dns.ExtendedErrorCodeStaleAnswer
	if a.rcode == dns.RcodeNameError {
		code = dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	a.extended = append(a.extended, &dns.EDNS0_EDE{InfoCode: code, ExtraText: readable(text)})
}

// says is one extended error, or none for nil.
func says(e *dns.EDNS0_EDE) []*dns.EDNS0_EDE {
	if e == nil {
		return nil
	}
	return []*dns.EDNS0_EDE{e}
}

func notAuthoritative() *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotAuthoritative}
}
