package zone

import (
	"cmp"
	"iter"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// pointee is a name that an address has in the first zone, where its PTR record may point. Two are the same name if
// they are equal. The zero value is none.
type pointee struct {
	kind                         pointeeKind
	namespace, service, hostname string // in lower case
}

type pointeeKind uint8

// The kinds of names of an address, the better the later.
const (
	noName      pointeeKind = iota
	podName                 // ip.N.pod.Z
	addressName             // ip.S.N.svc.Z
	hostName                // H.S.N.svc.Z
)

// pointee chooses among the names that peers give to an address: the best kind, and of that the first in canonical order.
// Each of them resolves to the address. A peer's Target is not among them, since its addresses may be another's.
func (s schema) pointee(addr netip.Addr, peers []*Peer) pointee {
	var best pointee
	for _, peer := range peers {
		for p := range peer.pointees() {
			if p.compare(best) < 0 && s.holds(p, addr) {
				best = p
			}
		}
	}
	return best
}

// pointees iterates over the names of each address of the peer.
func (p *Peer) pointees() iter.Seq[pointee] {
	return func(yield func(pointee) bool) {
		namespace, service, hostname := strings.ToLower(p.Namespace), strings.ToLower(p.Service), strings.ToLower(p.Hostname)
		kind := hostName
		if hostname == "" {
			kind = addressName
		}
		if service != "" && !yield(pointee{kind, namespace, service, hostname}) {
			return
		}
		yield(pointee{kind: podName, namespace: namespace})
	}
}

// compare puts the better first. All names of a kind have the same number of labels, of which the right ones weigh more
// (RFC 4034 §6.1).
func (p pointee) compare(q pointee) int {
	return cmp.Or(
		-cmp.Compare(p.kind, q.kind),
		cmp.Compare(p.namespace, q.namespace),
		cmp.Compare(p.service, q.service),
		cmp.Compare(p.hostname, q.hostname),
	)
}

// holds tells whether the name is in the zone: a zone of ours below it may be in the way.
func (s schema) holds(p pointee, addr netip.Addr) bool {
	if len(s.inner) == 0 {
		return true
	}
	name, ok := s.pointeeName(p, addr)
	for _, inner := range s.inner {
		ok = ok && !name.In(inner)
	}
	return ok
}

func (s schema) pointeeName(p pointee, addr netip.Addr) (Name, bool) {
	var name Name
	var err error
	switch p.kind {
	case noName:
		return "", false
	case podName:
		name, err = s.podName(p.namespace, addr)
	default:
		label := p.hostname
		if p.kind == addressName {
			label = AddressLabel(addr)
		}
		if name, err = s.serviceName(p.namespace, p.service); err == nil {
			name, err = name.Child(label)
		}
	}
	return name, err == nil // admit has seen to it that there is no error
}

// ptr returns the PTR RRset of an address (RFC 1035 §3.3.12): one record, or none if the address has no name.
func (s schema) ptr(addr netip.Addr, p pointee) RRset {
	if name, ok := s.pointeeName(p, addr); ok {
		return newRRset(dns.TypePTR, s.ttl, string(name))
	}
	return RRset{Type: dns.TypePTR}
}

// addressZones are the zones of a store without reverse ranges: the reverse name of each known address is the apex of a
// zone that has this one name. They share a serial.
type addressZones struct {
	serial   uint32
	ns, soa  RRset
	negative RRset               // the SOA with the negative TTL
	ptrs     shards[Name, RRset] // by reverse name
}

func newAddressZones(serial uint32, a authority, ptrs shards[Name, RRset]) *addressZones {
	soa, negative := a.soa(serial)
	return &addressZones{serial: serial, ns: a.ns(), soa: soa, negative: negative, ptrs: ptrs}
}

// lookup finds the records of a type at a name that is in no other zone. Before the first sync any address may turn out
// to be a peer's: who asks for it too early must wait, and not be refused.
func (z *addressZones) lookup(name Name, rrtype uint16, synced bool) Result {
	if z == nil {
		return Result{Outcome: OutOfZone}
	}
	ptr, found := z.ptrs.get(name)
	switch {
	case !synced && isReverseName(name):
		return Result{Outcome: NotSynced, Zone: name}
	case !found:
		return z.below(name)
	}
	switch rrtype {
	case dns.TypePTR, dns.TypeANY: // RFC 8482 §4.1: one RRset is enough
		return Result{Outcome: Success, Zone: name, RRset: ptr}
	case dns.TypeSOA:
		return Result{Outcome: Success, Zone: name, RRset: z.soa}
	case dns.TypeNS:
		return Result{Outcome: Success, Zone: name, RRset: z.ns}
	}
	return Result{Outcome: NoData, Zone: name, SOA: z.negative}
}

// below returns what there is at a name without records: nothing, in the zone of the address above it if there is one.
func (z *addressZones) below(name Name) Result {
	for above, ok := name.Parent(); ok; above, ok = above.Parent() {
		if _, found := z.ptrs.get(above); found {
			return Result{Outcome: NXDomain, Zone: above, SOA: z.negative}
		}
	}
	return Result{Outcome: OutOfZone}
}

// replace puts each PTR RRset at its name; an empty one takes the name away.
func (z *addressZones) replace(ptrs map[Name]RRset, a authority) *addressZones {
	if len(ptrs) == 0 {
		return z
	}
	edit := z.ptrs.edit()
	for name, ptr := range ptrs {
		was, there := edit.get(name)
		switch {
		case len(ptr.Data) > 0 && !was.equal(ptr):
			edit.set(name, ptr)
		case len(ptr.Data) == 0 && there:
			edit.delete(name)
		}
	}
	if !edit.changed {
		return z
	}
	return newAddressZones(z.serial+1, a, edit.done())
}
