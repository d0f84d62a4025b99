package resolver

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// allowList says who may ask: clients in one of the prefixes, and everyone if there is none.
type allowList []netip.Prefix

// has tells whether a client may ask. A socket of both families has IPv4 clients as IPv4-mapped addresses, and
// link-local ones with their interface, which no prefix contains.
func (l allowList) has(client netip.Addr) bool {
	client = client.Unmap().WithZone("")
	return len(l) == 0 || slices.ContainsFunc(l, func(p netip.Prefix) bool { return p.Contains(client) })
}

// prohibited is for those who may not ask (RFC 8914 §4.19): they are told so, since silence would make them ask again.
func prohibited() *dns.EDNS0_EDE {
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited}
}
