package zone

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Config is what a Store is made of.
type Config struct {
	Zones       []Name         // apexes; at least one, none twice; PTR records point into the first
	Reverse     []netip.Prefix // ranges whose reverse names are ours; without any, those of the peers' addresses are
	TTL         uint32         // of the records, in seconds
	NegativeTTL uint32         // of negative answers, in seconds
	NameServer  []netip.Addr   // addresses of ns.dns.Z
	Serial      uint32         // of the first view

	// Continues has the last serial numbers of zones that were served before, as View.Serials returned them. Such a zone
	// begins with Serial only if that comes after its last one, else with the next (RFC 1982).
	Continues map[Name]uint32
}

// Store owns the zones. Writers take turns; readers take no lock.
type Store struct {
	schemas []schema // in the order of Config.Zones

	mu       sync.Mutex                     // guards what follows; held while a view is made
	services map[serviceKey]map[string]bool // the objects that speak of a service
	addrs    map[netip.Addr][]*Peer         // the peers that have an address, in objects
	targets  map[Name]map[serviceKey]int    // how many peers of a service have this SRV target of their own, in a zone
	changed  chan struct{}                  // closed, and replaced, after a view was published

	current atomic.Pointer[View] // stored with mu held
}

type serviceKey struct{ namespace, service string }

// object is what one object says now, in the form in which the zone took it.
type object struct {
	given    Change // as it came: a change that equals it changes nothing
	peers    []Peer
	excluded []Exclusion
}

// NewStore returns a Store whose zones are not synced yet: until the first Apply every name in them is NotSynced.
// It fails with ErrName if an apex leaves no room for the names of the zone itself.
//
// A reverse range becomes one zone for each label that it covers, as 78.10.in-addr.arpa and 79.10.in-addr.arpa for
// 10.78.0.0/15. Ranges may overlap: a reverse zone inside another is left out. Without ranges, the reverse name of each
// peer's address is the apex of its own zone, and every other name is OutOfZone, those below it too; until the first
// Apply the reverse name of any address is NotSynced.
func NewStore(c Config) (*Store, error) {
	if len(c.Zones) == 0 {
		return nil, errors.New("no zone")
	}
	s := &Store{
		services: map[serviceKey]map[string]bool{},
		addrs:    map[netip.Addr][]*Peer{},
		targets:  map[Name]map[serviceKey]int{},
		changed:  make(chan struct{}),
	}
	reverse, err := reverseApexes(c.Reverse)
	if err != nil {
		return nil, err
	}
	view := &View{
		apexes:  newApexIndex(c.Zones, reverse),
		objects: newShards[string, *object](), excludedAt: newShards[Name, []*Exclusion](),
	}
	for i, apex := range c.Zones {
		if view.apexes.zones[apex] != i {
			return nil, fmt.Errorf("zone %s is given twice, or is that of a reverse range too", apex)
		}
		schema, err := newSchema(apex, c.TTL, c.NegativeTTL)
		if err != nil {
			return nil, err
		}
		s.schemas = append(s.schemas, schema)
		view.zones = append(view.zones, newZone(apex, c.serial(apex), schema.authority, schema.fixed(c.NameServer)))
	}
	first := &s.schemas[0]
	for _, apex := range c.Zones[1:] {
		if apex.In(first.apex) {
			first.inner = append(first.inner, apex)
		}
	}
	for _, apex := range reverse {
		view.zones = append(view.zones, newZone(apex, c.serial(apex), first.authority, recordSet{apex: {first.ns()}}))
	}
	if len(reverse) == 0 {
		view.addresses = newAddressZones(c.serial(Root), first.authority, newShards[Name, RRset]())
	}
	s.current.Store(view)
	return s, nil
}

func newZone(apex Name, serial uint32, a authority, fixed recordSet) *zoneView {
	edit := editZone(&zoneView{apex: apex, serial: serial - 1, nodes: newShards[Name, node]()}, a)
	edit.replace(nil, fixed)
	return edit.done()
}

// View returns the state of all zones. Any goroutine may call it, at any time.
func (s *Store) View() *View { return s.current.Load() }

// Watch returns the state of all zones and a channel that closes when it is out of date.
func (s *Store) Watch() (*View, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.Load(), s.changed
}

// Apply takes changes, the later of one object over the earlier, and publishes one new view with all of them. The
// first Apply makes the zones synced, also when it has no changes: an empty cluster is news too. A change that says
// nothing new publishes nothing, and the serial moves only when a record does.
func (s *Store) Apply(changes ...Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	t := s.begin(before)
	for _, change := range changes {
		t.change(change)
	}
	if before.synced && !t.objects.changed {
		return
	}
	view := t.view()
	// First the view, then the news: who is woken sees the view that woke him.
	s.current.Store(view)
	close(s.changed)
	s.changed = make(chan struct{})
}
