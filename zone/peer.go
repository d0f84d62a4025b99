package zone

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Peer is one member of a cluster as DNS sees it. It is a value: nobody changes its slices once it is in a Change.
type Peer struct {
	Namespace string
	Service   string       // "" for a peer that only has a pod name
	Hostname  string       // the endpoint label; "": each address has its hyphenated form
	Target    Name         // of its SRV records, where that is not the name with the endpoint label
	Pod       string       // name of the pod it comes from, "" if not known
	NodeName  string       // for _nodes, as "web-0@192.0.2.1"; "": the pod's name at its first address, if it is known
	Addrs     []netip.Addr // valid, unmapped, without zone
	Ports     []Port
}

// Port is a port of a peer.
type Port struct {
	Name     string // a DNS label, lower case; "" for an unnamed port
	Protocol string // lower case: tcp, udp, sctp
	Number   uint16
}

// Reason says why a peer is known but left out. It comes from the closed set below.
type Reason string

// The reasons for an exclusion.
const (
	NotReady         Reason = "not-ready"
	Terminating      Reason = "terminating"
	Succeeded        Reason = "succeeded"
	Failed           Reason = "failed"
	NoIP             Reason = "no-ip"
	FQDN             Reason = "fqdn"
	ForbiddenAddress Reason = "forbidden-address"
	NotPinned        Reason = "not-pinned"
	BadName          Reason = "bad-name"
	NoService        Reason = "no-service"
)

// Reasons are all reasons there are.
var Reasons = [...]Reason{
	NotReady, Terminating, Succeeded, Failed, NoIP, FQDN, ForbiddenAddress, NotPinned, BadName, NoService,
}

// Exclusion is a peer that is known but left out, or that lacks some of its names, and why. An address that could not
// be read is not among its Addrs.
type Exclusion struct {
	Peer
	Reason Reason
}

// Change replaces all that one object has said. Without peers and exclusions, the object is gone.
type Change struct {
	Object   string // as "endpointslice/shop/web-x7k2p"; the zone only compares it
	Peers    []Peer
	Excluded []Exclusion
	Warnings []string // what was found wrong in the object and left no peer out, a line each
}

func (p Peer) equal(q Peer) bool {
	return p.Namespace == q.Namespace && p.Service == q.Service && p.Hostname == q.Hostname && p.Target == q.Target &&
		p.Pod == q.Pod && p.NodeName == q.NodeName &&
		slices.Equal(p.Addrs, q.Addrs) && slices.Equal(p.Ports, q.Ports)
}

func (e Exclusion) equal(f Exclusion) bool { return e.Reason == f.Reason && e.Peer.equal(f.Peer) }

// SameAs tells whether both are of the same peer, with the same addresses and for the same reason.
func (e Exclusion) SameAs(f Exclusion) bool { return e.compare(f) == 0 }

func (e Exclusion) compare(f Exclusion) int {
	return cmp.Or(
		cmp.Compare(e.Namespace, f.Namespace),
		cmp.Compare(e.Service, f.Service),
		cmp.Compare(e.Pod, f.Pod),
		slices.CompareFunc(e.Addrs, f.Addrs, netip.Addr.Compare),
		cmp.Compare(e.Reason, f.Reason),
	)
}

func (c Change) equal(d Change) bool {
	return c.Object == d.Object && slices.EqualFunc(c.Peers, d.Peers, Peer.equal) &&
		slices.EqualFunc(c.Excluded, d.Excluded, Exclusion.equal) && slices.Equal(c.Warnings, d.Warnings)
}

// AddressLabel returns the hyphenated form of an address: "." and ":" become "-". Where the compressed form of an IPv6
// address begins or ends with a hyphen, that end's zero is written out, since a host label does neither (RFC 1123 §2.1).
func AddressLabel(addr netip.Addr) string {
	label := strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, addr.String())
	if label[0] == '-' {
		label = "0" + label
	}
	if label[len(label)-1] == '-' {
		label += "0"
	}
	return label
}

// parseAddressLabel reads an IPv6 address from any spelling of its hyphenated form, IPv4 from its only one.
func parseAddressLabel(label string) (netip.Addr, bool) {
	if len(label) > len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff") || strings.ContainsAny(label, ".:") {
		return netip.Addr{}, false
	}
	for _, sep := range [...]string{".", ":"} {
		if addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", sep)); err == nil {
			return addr, true
		}
	}
	return netip.Addr{}, false
}
