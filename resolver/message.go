package resolver

import (
	"iter"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// proto is the transport that a question came over.
type proto uint8

const (
	udp proto = iota
	tcp
	tls
)

// messagePath answers any query. Its methods depend on nothing but it and their arguments, save that the secret of
// cookies is renewed now and then.
type messagePath struct {
	maxUDPSize int           // octets of the largest reply over UDP, and what our OPT says
	allow      allowList     // who may ask
	serverID   string        // for NSID and id.server; "": neither
	version    string        // for version.server; "": none
	notReady   func() string // why there is no view yet; nil: nobody knows
	stale      func() string // since when and why the view is old; "", or nil: it is not
	cookies    *cookies      // nil: none are given
}

// occasion is what a reply depends on besides the view and the message.
type occasion struct {
	client netip.Addr
	over   proto
	now    time.Time
	turn   uint32 // which record of an RRset comes first, counted round
}

// reply returns the reply to a message, nil if there is none, and whether it is final: it is not if the zone asked for
// waits for its first sync. Then the caller may forget the reply, which is SERVFAIL, and ask again with a later view.
// The reply shares no memory with the message.
func (p messagePath) reply(view *zone.View, msg []byte, on occasion) (reply []byte, final bool) {
	q, ok := parseQuery(msg)
	if !ok {
		return nil, true
	}
	a := p.answerTo(view, &q, on)
	p.addStale(&q, &a)
	limit := p.limit(&q, on.over)
	reply = pack(&q, &a, p.replyOPT(&q, &a, on), limit)
	if a.extended != nil && reply[2]&(flagTC>>8) != 0 {
		// Why a name does not exist is worth less than that it does not (RFC 8914 §3).
		a.extended = nil
		reply = pack(&q, &a, p.replyOPT(&q, &a, on), limit)
	}
	return reply, !a.early
}

// answer is what there is to say to a query, whatever fits of it. The zero value is an empty NOERROR.
type answer struct {
	rcode         int
	authoritative bool
	early         bool // asked before the first sync

	answer, authority rrsets // must be there: TC if they do not fit
	additional        iter.Seq2[zone.Name, zone.RRset]

	extended []*dns.EDNS0_EDE // RFC 8914
}

// rrsets is one section: at most one RRset and its owner name.
type rrsets struct {
	owner zone.Name
	set   zone.RRset
	class uint16 // 0 is IN
	first int    // the record that comes first; the others follow, round
}

// answerTo finds the answer to a query in a view. All sections are of that view, so that the target of an SRV record
// has its address beside it.
func (p messagePath) answerTo(view *zone.View, q *query, on occasion) answer {
	switch {
	case q.rcode != dns.RcodeSuccess:
		return answer{rcode: q.rcode}
	case !p.allow.has(on.client): // before anything that a zone says
		return answer{rcode: dns.RcodeRefused, extended: says(prohibited())}
	case q.question == nil: // for a cookie only (RFC 7873 §5.4)
		return answer{}
	case q.qclass == dns.ClassCHAOS:
		return p.chaos(q)
	case q.qclass != dns.ClassINET:
		return answer{rcode: dns.RcodeRefused, extended: says(notAuthoritative())}
	case q.qtype == dns.TypeAXFR || q.qtype == dns.TypeIXFR:
		return answer{rcode: dns.RcodeRefused}
	}
	result := view.Lookup(q.name, q.qtype)
	switch result.Outcome {
	case zone.Success:
		answers := rrsets{owner: q.name, set: result.RRset, first: int(on.turn % uint32(len(result.RRset.Data)))}
		return answer{authoritative: true, answer: answers, additional: addresses(view, answers)}
	case zone.NoData:
		return negative(dns.RcodeSuccess, result, view.ExcludedAt(q.name))
	case zone.NXDomain:
		return negative(dns.RcodeNameError, result, view.ExcludedAt(q.name))
	case zone.NotSynced:
		return answer{rcode: dns.RcodeServerFailure, early: true, extended: says(p.early())}
	}
	return answer{rcode: dns.RcodeRefused, extended: says(notAuthoritative())}
}

// negative is NXDOMAIN or NODATA, with the SOA that says for how long (RFC 2308 §3), and with who is known at the name
// but left out.
func negative(rcode int, result zone.Result, left []*zone.Exclusion) answer {
	return answer{
		rcode: rcode, authoritative: true, authority: rrsets{owner: result.Zone, set: result.SOA}, extended: says(excluded(left)),
	}
}

// addresses iterates over the A and AAAA RRsets of the names that the records point to, each name once, in the order
// of the records (RFC 2782, RFC 1035 §3.3.11). It looks up as it goes: who stops early has not paid for the rest.
func addresses(view *zone.View, answers rrsets) iter.Seq2[zone.Name, zone.RRset] {
	before := 0 // octets of RDATA before the target
	switch answers.set.Type {
	case dns.TypeNS:
	case dns.TypeSRV:
		before = 6
	default:
		return func(func(zone.Name, zone.RRset) bool) {}
	}
	return func(yield func(zone.Name, zone.RRset) bool) {
		seen := make(map[zone.Name]bool)
		data := answers.set.Data
		for i := range data {
			rdata := data[(answers.first+i)%len(data)]
			target := zone.Name(rdata[before:]) // RDATA in a view is canonical, and so is the name
			if seen[target] {
				continue
			}
			seen[target] = true
			for _, rrtype := range [...]uint16{dns.TypeA, dns.TypeAAAA} {
				result := view.Lookup(target, rrtype)
				if result.Outcome == zone.Success && !yield(target, result.RRset) {
					return
				}
			}
		}
	}
}
