package zone

// zoneEditor is the next state of a zone while it is made.
type zoneEditor struct {
	authority
	before *zoneView
	nodes  *shardsEditor[Name, node]
}

func editZone(before *zoneView, a authority) *zoneEditor {
	return &zoneEditor{authority: a, before: before, nodes: before.nodes.edit()}
}

// replace takes away the records of before and puts those of now. No other records may stand at these names.
func (e *zoneEditor) replace(before, now recordSet) {
	for name := range before {
		if _, stays := now[name]; !stays {
			e.remove(name)
		}
	}
	for name, rrsets := range now {
		if was, ok := before[name]; !ok || !now.equalAt(name, was) {
			e.put(name, rrsets)
		}
	}
}

func (e *zoneEditor) put(name Name, rrsets []RRset) {
	n, found := e.nodes.get(name)
	n.rrsets = rrsets
	e.nodes.set(name, n)
	if !found {
		e.addToParent(name)
	}
}

// addToParent counts a new name at its parent, which makes the parent an empty non-terminal if it was not there.
func (e *zoneEditor) addToParent(name Name) {
	for name != e.before.apex {
		name, _ = name.Parent()
		n, found := e.nodes.get(name)
		n.children++
		e.nodes.set(name, n)
		if found {
			return
		}
	}
}

// remove takes the records of a name, and the name too if none is below it; and then so with the names above.
func (e *zoneEditor) remove(name Name) {
	n, _ := e.nodes.get(name)
	n.rrsets = nil
	for n.children == 0 && n.rrsets == nil && name != e.before.apex {
		e.nodes.delete(name)
		name, _ = name.Parent()
		n, _ = e.nodes.get(name)
		n.children--
	}
	e.nodes.set(name, n)
}

// replaceRRset puts the RRset in the place of that of its type, beside those of other types; an empty one only takes that
// away.
func (e *zoneEditor) replaceRRset(name Name, set RRset) {
	n, _ := e.nodes.get(name)
	was, there := n.rrset(set.Type)
	switch {
	case len(set.Data) > 0 && (!there || !was.equal(set)):
		e.put(name, n.with(set).rrsets)
	case len(set.Data) == 0 && there && len(n.rrsets) == 1:
		e.remove(name)
	case len(set.Data) == 0 && there:
		e.put(name, n.without(set.Type).rrsets)
	}
}

func (e *zoneEditor) resolves(name Name) bool {
	n, _ := e.nodes.get(name)
	return n.resolves()
}

// done returns the new state: the one before if no record has changed, else one with the next serial (RFC 1982 §3.1).
func (e *zoneEditor) done() *zoneView {
	if !e.nodes.changed {
		return e.before
	}
	serial, apex := e.before.serial+1, e.before.apex
	soa, negative := e.soa(serial)
	top, _ := e.nodes.get(apex)
	e.nodes.set(apex, top.with(soa))
	return &zoneView{apex: apex, serial: serial, nodes: e.nodes.done(), negative: negative}
}
