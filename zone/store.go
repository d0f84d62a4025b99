package zone

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Config is what a Store is made of.
type Config struct {
	Zones       []Name       // apexes; at least one, none twice
	TTL         uint32       // of the records, in seconds
	NegativeTTL uint32       // of negative answers, in seconds
	NameServer  []netip.Addr // addresses of ns.dns.Z
	Serial      uint32       // of the first view
}

// Store owns the zones. Writers take turns; readers take no lock.
type Store struct {
	schemas []schema // in the order of View.zones

	mu       sync.Mutex                     // guards what follows; held while a view is made
	services map[serviceKey]map[string]bool // the objects that speak of a service
	pods     map[podKey]int                 // how many peers of a namespace have an address
	targets  map[Name]map[serviceKey]int    // how many peers of a service have this SRV target of their own, in a zone
	changed  chan struct{}                  // closed, and replaced, after a view was published

	current atomic.Pointer[View] // stored with mu held
}

type serviceKey struct{ namespace, service string }

type podKey struct {
	namespace string
	addr      netip.Addr
}

// object is what one object says now, in the form in which the zone took it.
type object struct {
	given    Change // as it came: a change that equals it changes nothing
	peers    []Peer
	excluded []Exclusion
}

// NewStore returns a Store whose zones are not synced yet: until the first Apply every name in them is NotSynced.
// It fails with ErrName if an apex leaves no room for the names of the zone itself.
func NewStore(c Config) (*Store, error) {
	if len(c.Zones) == 0 {
		return nil, errors.New("no zone")
	}
	apexes := slices.Clone(c.Zones)
	slices.SortFunc(apexes, func(a, b Name) int { return b.Compare(a) }) // the deeper first
	if twice := firstDuplicate(apexes); twice != "" {
		return nil, fmt.Errorf("zone %s is given twice", twice)
	}
	s := &Store{
		services: map[serviceKey]map[string]bool{},
		pods:     map[podKey]int{},
		targets:  map[Name]map[serviceKey]int{},
		changed:  make(chan struct{}),
	}
	view := &View{objects: newShards[string, *object](), excludedAt: newShards[Name, []*Exclusion]()}
	for _, apex := range apexes {
		schema, err := newSchema(apex, c.TTL, c.NegativeTTL)
		if err != nil {
			return nil, err
		}
		s.schemas = append(s.schemas, schema)
		empty := &zoneView{apex: apex, serial: c.Serial - 1, nodes: newShards[Name, node]()}
		edit := editZone(empty, schema)
		edit.replace(nil, schema.fixed(c.NameServer))
		view.zones = append(view.zones, edit.done())
	}
	s.current.Store(view)
	return s, nil
}

func firstDuplicate(sorted []Name) Name {
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i]
		}
	}
	return ""
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

// transaction gathers what a batch of changes touches, so that each service and each address is made anew once.
type transaction struct {
	*Store
	before   *View
	objects  *shardsEditor[string, *object]
	excluded int
	index    *shardsEditor[Name, []*Exclusion]
	services map[serviceKey][]Peer // touched, with their peers before
	pods     map[podKey]bool       // touched, with whether they were there before
}

func (s *Store) begin(before *View) *transaction {
	return &transaction{
		Store: s, before: before, objects: before.objects.edit(), excluded: before.excluded, index: before.excludedAt.edit(),
		services: map[serviceKey][]Peer{}, pods: map[podKey]bool{},
	}
}

func (t *transaction) change(c Change) {
	old, known := t.objects.get(c.Object)
	gone := len(c.Peers) == 0 && len(c.Excluded) == 0
	if known && old.given.equal(c) || !known && gone {
		return
	}
	if known {
		t.touch(old.peers)
		t.leave(c.Object, old.peers)
		t.excluded -= len(old.excluded)
		unindex(t.index, old.excluded)
	}
	if gone {
		t.objects.delete(c.Object)
		return
	}
	now := &object{given: c, excluded: c.Excluded}
	for _, peer := range c.Peers {
		admitted, excluded := t.admit(peer)
		if excluded != nil {
			now.excluded = append(slices.Clip(now.excluded), *excluded)
		}
		if len(admitted.Addrs) > 0 {
			now.peers = append(now.peers, admitted)
		}
	}
	t.touch(now.peers)
	t.enter(c.Object, now.peers)
	t.excluded += len(now.excluded)
	index(t.index, now.excluded)
	t.objects.set(c.Object, now)
}

func (s *Store) admit(peer Peer) (Peer, *Exclusion) {
	for _, schema := range s.schemas {
		var excluded *Exclusion
		if peer, excluded = schema.admit(peer); excluded != nil {
			return peer, excluded
		}
	}
	return peer, nil
}

// touch remembers the state before of what the peers are part of; it must come before enter and leave.
func (t *transaction) touch(peers []Peer) {
	for i := range peers {
		p := &peers[i]
		if key := (serviceKey{p.Namespace, p.Service}); p.Service != "" {
			if _, ok := t.services[key]; !ok {
				t.services[key] = t.peersOf(key, t.before.objects)
			}
		}
		for _, addr := range p.Addrs {
			key := podKey{p.Namespace, addr}
			if _, ok := t.pods[key]; !ok {
				t.pods[key] = t.Store.pods[key] > 0
			}
		}
	}
}

func (t *transaction) enter(name string, peers []Peer) {
	for i := range peers {
		p := &peers[i]
		if p.Service != "" {
			key := serviceKey{p.Namespace, p.Service}
			if t.Store.services[key] == nil {
				t.Store.services[key] = map[string]bool{}
			}
			t.Store.services[key][name] = true
			t.countTarget(p.Target, key, 1)
		}
		for _, addr := range p.Addrs {
			t.Store.pods[podKey{p.Namespace, addr}]++
		}
	}
}

func (t *transaction) leave(name string, peers []Peer) {
	for i := range peers {
		p := &peers[i]
		key := serviceKey{p.Namespace, p.Service}
		if delete(t.Store.services[key], name); len(t.Store.services[key]) == 0 {
			delete(t.Store.services, key)
		}
		if p.Service != "" {
			t.countTarget(p.Target, key, -1)
		}
		for _, addr := range p.Addrs {
			pod := podKey{p.Namespace, addr}
			if t.Store.pods[pod]--; t.Store.pods[pod] == 0 {
				delete(t.Store.pods, pod)
			}
		}
	}
}

// peersOf returns the peers of a service: the union over all objects.
func (t *transaction) peersOf(key serviceKey, objects shards[string, *object]) []Peer {
	var peers []Peer
	for name := range t.Store.services[key] {
		o, ok := objects.get(name)
		if !ok {
			continue
		}
		for i := range o.peers {
			if o.peers[i].Namespace == key.namespace && o.peers[i].Service == key.service {
				peers = append(peers, o.peers[i])
			}
		}
	}
	return peers
}

// countTarget remembers which services depend on whether a name resolves.
func (t *transaction) countTarget(target Name, key serviceKey, n int) {
	if !slices.ContainsFunc(t.schemas, func(s schema) bool { return target.In(s.apex) }) {
		return // none, or one that others must resolve
	}
	if t.targets[target] == nil {
		t.targets[target] = map[serviceKey]int{}
	}
	if t.targets[target][key] += n; t.targets[target][key] == 0 {
		delete(t.targets[target], key)
	}
	if len(t.targets[target]) == 0 {
		delete(t.targets, target)
	}
}

func (t *transaction) view() *View {
	view := &View{synced: true, objects: t.objects.done(), excluded: t.excluded, excludedAt: t.index.done()}
	for i, schema := range t.schemas {
		view.zones = append(view.zones, t.zone(t.before.zones[i], schema, view.objects))
	}
	return view
}

// zone makes the next state of one zone.
func (t *transaction) zone(before *zoneView, s schema, objects shards[string, *object]) *zoneView {
	edit := editZone(before, s)
	for key, was := range t.pods {
		records := s.ofAddress(key.namespace, key.addr)
		switch is := t.Store.pods[key] > 0; {
		case was && !is:
			edit.replace(records, nil)
		case !was && is:
			edit.replace(nil, records)
		}
	}
	// Addresses first: whether a name resolves must be known before an SRV record points to it. A service whose
	// targets came to resolve, or ceased to, is made anew although none of its objects has changed.
	replace := func(key serviceKey, was []Peer) {
		edit.replace(s.ofService(key.namespace, key.service, was, before.resolves),
			s.ofService(key.namespace, key.service, t.peersOf(key, objects), edit.resolves))
	}
	for key, was := range t.services {
		replace(key, was)
	}
	dependent := map[serviceKey]bool{}
	for name, services := range t.targets {
		if before.resolves(name) != edit.resolves(name) {
			for key := range services {
				dependent[key] = true
			}
		}
	}
	for key := range dependent {
		edit.replace(nil, s.ofService(key.namespace, key.service, t.peersOf(key, objects), edit.resolves))
	}
	return edit.done()
}
