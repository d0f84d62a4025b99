package zone

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/miekg/dns"
)

// Outcome is what a lookup finds. The zero value refuses.
type Outcome uint8

// The outcomes of a lookup.
const (
	OutOfZone Outcome = iota // in no zone of ours: REFUSED
	NotSynced                // in a zone that is ours, or may be, and that nobody has filled yet: SERVFAIL, never NXDOMAIN
	NXDomain                 // neither the name nor any name below it exists (RFC 8020)
	NoData                   // the name exists, or one below it, but not the type (RFC 2308 §2.2)
	Success
)

func (o Outcome) String() string {
	switch o {
	case OutOfZone:
		return "out of zone"
	case NotSynced:
		return "not synced"
	case NXDomain:
		return "NXDOMAIN"
	case NoData:
		return "NODATA"
	case Success:
		return "success"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Result is what a View says of a name and a type.
type Result struct {
	Outcome Outcome
	Zone    Name  // apex of the zone that the name is in; "" out of zone
	RRset   RRset // with Success
	SOA     RRset // with NXDomain and NoData: the zone's SOA for the authority section, with the negative TTL (RFC 2308 §3)
}

// View is one state of all zones. It never changes, so that one reply made from one View cannot mix two states.
type View struct {
	zones     []*zoneView   // those of Config.Zones in that order, then the reverse zones in canonical order
	apexes    *apexIndex    // of zones
	addresses *addressZones // nil with reverse ranges
	synced    bool
	objects   shards[string, *object]

	excluded   int // in all
	excludedAt exclusionIndex
}

// zoneView is one state of one zone.
type zoneView struct {
	apex     Name
	serial   uint32
	nodes    shards[Name, node]
	negative RRset // the SOA with the negative TTL
}

// node is what the tree holds for one name: an empty non-terminal has children only.
type node struct {
	rrsets   []RRset // sorted by type
	children int     // names one label below that exist
}

func (n node) rrset(rrtype uint16) (RRset, bool) {
	for _, set := range n.rrsets {
		if set.Type == rrtype {
			return set, true
		}
	}
	return RRset{}, false
}

// resolves tells whether the name has an address.
func (n node) resolves() bool {
	_, a := n.rrset(dns.TypeA)
	_, aaaa := n.rrset(dns.TypeAAAA)
	return a || aaaa
}

// with returns the node with one RRset put in the place of that of its type.
func (n node) with(set RRset) node {
	n = n.without(set.Type)
	n.rrsets = append(n.rrsets, set)
	slices.SortFunc(n.rrsets, func(a, b RRset) int { return cmp.Compare(a.Type, b.Type) })
	return n
}

func (n node) without(rrtype uint16) node {
	n.rrsets = slices.DeleteFunc(slices.Clone(n.rrsets), func(s RRset) bool { return s.Type == rrtype })
	return n
}

// Synced tells whether the zones are filled: every source has given its first complete list.
func (v *View) Synced() bool { return v.synced }

// Lookup finds the records of a type at a name (RFC 1034 §4.3.2, without delegations and wildcards). The outcome
// depends on the type only where it tells NoData from Success.
func (v *View) Lookup(name Name, rrtype uint16) Result {
	z := v.zoneOf(name)
	switch {
	case z == nil:
		return v.addresses.lookup(name, rrtype, v.synced)
	case !v.synced:
		return Result{Outcome: NotSynced, Zone: z.apex}
	}
	n, found := z.find(name)
	if !found {
		return Result{Outcome: NXDomain, Zone: z.apex, SOA: z.negative}
	}
	set, ok := n.rrset(rrtype)
	if rrtype == dns.TypeANY && len(n.rrsets) > 0 {
		// RFC 8482 §4.1: one RRset is enough of an answer, and whoever asks for everything gets no large reply.
		set, ok = n.rrsets[0], true
	}
	if ok {
		return Result{Outcome: Success, Zone: z.apex, RRset: set}
	}
	return Result{Outcome: NoData, Zone: z.apex, SOA: z.negative}
}

// zoneOf returns the deepest zone that the name is in.
func (v *View) zoneOf(name Name) *zoneView {
	if i, ok := v.apexes.find(name); ok {
		return v.zones[i]
	}
	return nil
}

// apexIndex finds the zone of a name. It is the same in all views of a store.
type apexIndex struct {
	zones   map[Name]int      // index in View.zones by apex
	forward int               // index of the first reverse zone
	lengths [maxName + 1]bool // those of the apexes, in octets: most endings of a name need no look in the map
}

func newApexIndex(forward, reverse []Name) *apexIndex {
	x := &apexIndex{zones: make(map[Name]int, len(forward)+len(reverse)), forward: len(forward)}
	for i, apex := range slices.Concat(forward, reverse) {
		x.zones[apex] = i
		x.lengths[len(apex)] = true
	}
	return x
}

func (x *apexIndex) find(name Name) (zone int, ok bool) {
	for len(name) > 0 {
		if x.lengths[len(name)] {
			if i, ok := x.zones[name]; ok {
				return i, true
			}
		}
		if len(name) == 1 {
			break
		}
		name = name[1+name[0]:]
	}
	return 0, false
}

func (z *zoneView) resolves(name Name) bool {
	n, _ := z.nodes.get(name)
	return n.resolves()
}

// find returns the node of a name; for a pod's name (ip.N.pod.Z) any spelling of the address will do.
func (z *zoneView) find(name Name) (node, bool) {
	if n, ok := z.nodes.get(name); ok {
		return n, true
	}
	if canonical, ok := z.canonicalPodName(name); ok {
		return z.nodes.get(canonical)
	}
	return node{}, false
}

// canonicalPodName returns ip.N.pod.Z with the address in its canonical spelling, if the name is of that form.
func (z *zoneView) canonicalPodName(name Name) (Name, bool) {
	namespace, ok := name.Parent()
	if !ok {
		return "", false
	}
	if pod, ok := namespace.Parent(); !ok || pod.Label() != "pod" || pod[1+len("pod"):] != z.apex {
		return "", false
	}
	addr, ok := parseAddressLabel(name.Label())
	if !ok {
		return "", false
	}
	canonical, err := namespace.Child(AddressLabel(addr))
	return canonical, err == nil
}

// Object returns the last change of an object, if the object is there.
func (v *View) Object(name string) (Change, bool) {
	o, ok := v.objects.get(name)
	if !ok {
		return Change{}, false
	}
	return o.given, true
}

// Objects iterates over the last change of each object that is there, in no order. Nobody may change their slices.
func (v *View) Objects() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for _, o := range v.objects.all() {
			if !yield(o.given) {
				return
			}
		}
	}
}

// Excluded returns all that is known but left out, in canonical order: by namespace, service, pod, addresses, reason.
func (v *View) Excluded() []Exclusion {
	excluded := make([]Exclusion, 0, v.excluded)
	for _, o := range v.objects.all() {
		excluded = append(excluded, o.excluded...)
	}
	slices.SortFunc(excluded, Exclusion.compare)
	return excluded
}

// Warnings returns what was found wrong in objects and left no peer out, sorted.
func (v *View) Warnings() []string {
	var warnings []string
	for _, o := range v.objects.all() {
		warnings = append(warnings, o.given.Warnings...)
	}
	slices.Sort(warnings)
	return warnings
}

// Zones returns the apexes of all zones in canonical order, the reverse zones too. Without reverse ranges the names of
// addresses, each its own zone, are not among them.
func (v *View) Zones() []Name {
	apexes := make([]Name, 0, len(v.zones))
	for _, z := range v.zones {
		apexes = append(apexes, z.apex)
	}
	slices.SortFunc(apexes, Name.Compare)
	return apexes
}

// Serial returns the serial number of a zone (RFC 1982), 0 for a name that is no apex.
func (v *View) Serial(apex Name) uint32 {
	for _, z := range v.zones {
		if z.apex == apex {
			return z.serial
		}
	}
	return 0
}

// Counts says how much a View holds.
type Counts struct {
	Objects  int // that make peers, or exclusions
	Peers    int // over all objects: one that two slices have counts twice
	Warnings int // see View.Warnings
}

// Counts returns how much the view holds.
func (v *View) Counts() Counts {
	var c Counts
	for _, o := range v.objects.all() {
		c.Objects++
		c.Peers += len(o.peers)
		c.Warnings += len(o.given.Warnings)
	}
	return c
}
