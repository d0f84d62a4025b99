package resolver

import (
	"fmt"
	"net/netip"

	"github.com/miekg/dns"
)

// allowList says who may ask: clients in one of the prefixes, and everyone if there is none.
type allowList []netip.Prefix

// newAllowList returns the list in the form that has looks for: an IPv4-mapped prefix is one of IPv4.
func newAllowList(prefixes []netip.Prefix) (allowList, error) {
	var list allowList
	for _, p := range prefixes {
		if !p.IsValid() {
			return nil, fmt.Errorf("allow: %v is no prefix", p)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p)
	}
	return list, nil
}

// has tells whether a client may ask. A socket of both families has IPv4 clients as IPv4-mapped addresses, and
// link-local ones with their interface, which no prefix contains.
func (l allowList) has(client netip.Addr) bool {
	if len(l) == 0 {
		return true
	}
	client = client.Unmap().WithZone("")
	for _, p := range l {
		if p.Contains(client) {
			return true
		}
	}
	return false
}

// prohibit returns the reply to a message of a client that may not ask: whatever the question is, REFUSED and why
// (RFC 8914 §4.19), since silence would make it ask again. It says nothing of the zones, nor of whether they are
// synced. It returns nil if there is no reply.
func (p messagePath) prohibit(msg []byte, over proto) []byte {
	q, ok := parseQuery(msg)
	if !ok {
		return nil
	}
	a := answer{rcode: q.rcode}
	if q.rcode == dns.RcodeSuccess {
		a = answer{rcode: dns.RcodeRefused, extended: prohibited()}
	}
	return pack(&q, &a, p.replyOPT(&q, &a), p.limit(&q, over))
}

func prohibited() *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited}
}
