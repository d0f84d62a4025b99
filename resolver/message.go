package resolver

import (
	"iter"

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

// messagePath answers any query. It is a value without state, and reply is a pure function.
type messagePath struct {
	maxUDPSize int // octets of the largest reply over UDP, and what our OPT says
}

// reply returns the reply to a message, nil if there is none, and whether it is final: it is not if the zone asked for
// waits for its first sync. Then the caller may forget the reply, which is SERVFAIL, and ask again with a later view.
// The reply shares no memory with the message.
func (p messagePath) reply(view *zone.View, msg []byte, over proto) (reply []byte, final bool) {
	q, ok := parseQuery(msg)
	if !ok {
		return nil, true
	}
	a := answerTo(view, &q)
	return pack(&q, &a, p.replyOPT(&q, &a), p.limit(&q, over)), !a.early
}

// answer is what there is to say to a query, whatever fits of it. The zero value is an empty NOERROR.
type answer struct {
	rcode         int
	authoritative bool
	early         bool // asked before the first sync

	answer, authority rrsets // must be there: TC if they do not fit
	additional        iter.Seq2[zone.Name, zone.RRset]

	extended *dns.EDNS0_EDE // RFC 8914; nil for none
}

// rrsets is one section: at most one RRset and its owner name.
type rrsets struct {
	owner zone.Name
	set   zone.RRset
}

// answerTo finds the answer to a query in a view. All sections are of that view, so that the target of an SRV record
// has its address beside it.
func answerTo(view *zone.View, q *query) answer {
	switch {
	case q.rcode != dns.RcodeSuccess:
		return answer{rcode: q.rcode}
	case q.qclass != dns.ClassINET:
		return answer{rcode: dns.RcodeRefused, extended: notAuthoritative()}
	case q.qtype == dns.TypeAXFR || q.qtype == dns.TypeIXFR:
		return answer{rcode: dns.RcodeRefused}
	}
	result := view.Lookup(q.name, q.qtype)
	switch result.Outcome {
	case zone.Success:
		return answer{
			authoritative: true,
			answer:        rrsets{q.name, result.RRset},
			additional:    addresses(view, result.RRset),
		}
	case zone.NoData:
		return negative(dns.RcodeSuccess, result, view.ExcludedAt(q.name))
	case zone.NXDomain:
		return negative(dns.RcodeNameError, result, view.ExcludedAt(q.name))
	case zone.NotSynced:
		return answer{rcode: dns.RcodeServerFailure, early: true, extended: notReady()}
	}
	return answer{rcode: dns.RcodeRefused, extended: notAuthoritative()}
}

// negative is NXDOMAIN or NODATA, with the SOA that says for how long (RFC 2308 §3), and with who is known at the name
// but left out.
func negative(rcode int, result zone.Result, left []*zone.Exclusion) answer {
	return answer{
		rcode: rcode, authoritative: true, authority: rrsets{result.Zone, result.SOA}, extended: excluded(left),
	}
}

// addresses iterates over the A and AAAA RRsets of the names that the records point to, each name once, in the order
// of the records (RFC 2782, RFC 1035 §3.3.11). It looks up as it goes: who stops early has not paid for the rest.
func addresses(view *zone.View, set zone.RRset) iter.Seq2[zone.Name, zone.RRset] {
	before := 0 // octets of RDATA before the target
	switch set.Type {
	case dns.TypeNS:
	case dns.TypeSRV:
		before = 6
	default:
		return func(func(zone.Name, zone.RRset) bool) {}
	}
	return func(yield func(zone.Name, zone.RRset) bool) {
		seen := make(map[zone.Name]bool)
		for _, rdata := range set.Data {
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
