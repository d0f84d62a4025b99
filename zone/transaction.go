package zone

import (
	"iter"
	"net/netip"
	"slices"
)

// transaction gathers what a batch of changes touches, so that each service and each address is made anew once.
type transaction struct {
	*Store
	before   *View
	objects  *shardsEditor[string, *object]
	excluded int
	index    *shardsEditor[Name, []*Exclusion]
	services map[serviceKey][]Peer  // touched, with their peers before
	addrs    map[netip.Addr][]*Peer // touched, with the peers that had them before
}

func (s *Store) begin(before *View) *transaction {
	return &transaction{
		Store: s, before: before, objects: before.objects.edit(), excluded: before.excluded, index: before.excludedAt.edit(),
		services: map[serviceKey][]Peer{}, addrs: map[netip.Addr][]*Peer{},
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

// admit checks the peer against every zone: a name that is too long in one is in none.
func (s *Store) admit(peer Peer) (Peer, *Exclusion) {
	var first *Exclusion
	for _, schema := range s.schemas {
		admitted, excluded := schema.admit(peer)
		if peer = admitted; first == nil {
			first = excluded
		}
	}
	return peer, first
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
			if _, ok := t.addrs[addr]; !ok {
				t.addrs[addr] = slices.Clone(t.Store.addrs[addr])
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
			t.Store.addrs[addr] = append(t.Store.addrs[addr], p)
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
			if rest := without(t.Store.addrs[addr], p); len(rest) > 0 {
				t.Store.addrs[addr] = rest
			} else {
				delete(t.Store.addrs, addr)
			}
		}
	}
}

// without takes one pointer to the peer out of the list, in place and without keeping its order.
func without(peers []*Peer, p *Peer) []*Peer {
	i, last := slices.Index(peers, p), len(peers)-1
	peers[i], peers[last] = peers[last], nil
	return peers[:last]
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
	view := &View{
		zones: slices.Clone(t.before.zones), apexes: t.before.apexes, addresses: t.before.addresses, synced: true,
		objects: t.objects.done(), excluded: t.excluded, excludedAt: t.index.done(),
	}
	for i, schema := range t.schemas {
		view.zones[i] = t.zone(t.before.zones[i], schema, view.objects)
	}
	t.reverse(view)
	return view
}

// zone makes the next state of one zone.
func (t *transaction) zone(before *zoneView, s schema, objects shards[string, *object]) *zoneView {
	edit := editZone(before, s.authority)
	for addr, was := range t.addrs {
		is := t.Store.addrs[addr]
		for namespace := range namespacesOnlyIn(was, is) {
			edit.replace(s.ofAddress(namespace, addr), nil)
		}
		for namespace := range namespacesOnlyIn(is, was) {
			edit.replace(nil, s.ofAddress(namespace, addr))
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

// namespacesOnlyIn iterates over the namespaces of the peers in a of which no peer is in b, each once.
func namespacesOnlyIn(a, b []*Peer) iter.Seq[string] {
	in := func(peers []*Peer, namespace string) bool {
		return slices.ContainsFunc(peers, func(p *Peer) bool { return p.Namespace == namespace })
	}
	return func(yield func(string) bool) {
		for i, p := range a {
			if !in(b, p.Namespace) && !in(a[:i], p.Namespace) && !yield(p.Namespace) {
				return
			}
		}
	}
}

// reverse points the reverse names of the touched addresses to the names that these have now. A reverse zone without such
// an address stays as it is.
func (t *transaction) reverse(view *View) {
	first := t.schemas[0]
	ptrs := map[Name]RRset{}
	for addr, peers := range t.addrs {
		if was, is := first.pointee(addr, peers), first.pointee(addr, t.Store.addrs[addr]); was != is {
			ptrs[reverseName(addr)] = first.ptr(addr, is)
		}
	}
	if view.addresses != nil {
		view.addresses = view.addresses.replace(ptrs, first.authority)
		return
	}
	edits := map[int]*zoneEditor{} // by index in View.zones
	for name, ptr := range ptrs {
		i, ok := view.apexes.find(name)
		if !ok || i < view.apexes.forward {
			continue // in no range; or in one of Config.Zones, which is deeper
		}
		if edits[i] == nil {
			edits[i] = editZone(view.zones[i], first.authority)
		}
		edits[i].replaceRRset(name, ptr)
	}
	for i, edit := range edits {
		view.zones[i] = edit.done()
	}
}
