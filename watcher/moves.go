package watcher

import (
	"net/netip"
	"strings"
	"time"

	"peerdns/zone"
)

// moveGrace is how long an address stays that a slice lost without a word. The endpoint slice controller moves
// endpoints between slices by two writes, in no promised order; the second follows within milliseconds, or tens of
// them on a busy API server (docs/adr/0004-endpoints-that-move.md).
const moveGrace = 200 * time.Millisecond

// moves keeps the peers that a slice dropped without a word, neither ready nor excluded, for as long as another slice
// may still claim them. An endpoint that leaves for good is first marked as not ready or terminating: that is a word,
// and takes effect at once.
type moves struct {
	objects map[string]*moving
}

// moving is an object with held peers.
type moving struct {
	said zone.Change // what the object itself says
	held []heldPeer  // the earlier first
}

type heldPeer struct {
	zone.Peer // with the addresses that are held
	until     time.Time
}

func newMoves() moves { return moves{objects: map[string]*moving{}} }

// hold returns the change with what is to be kept of what the object said before.
func (m moves) hold(was, now zone.Change, at time.Time) zone.Change {
	if !strings.HasPrefix(now.Object, slicePrefix) {
		return now
	}
	next := &moving{said: now}
	if before := m.objects[now.Object]; before != nil {
		was = before.said
		next.keep(before.held, at)
	}
	spoken := addressesOf(now)
	for _, peer := range was.Peers {
		if lost := without(peer, spoken); len(lost.Addrs) > 0 {
			next.held = append(next.held, heldPeer{lost, at.Add(moveGrace)})
		}
	}
	return m.put(next)
}

// due returns the changes of the objects for some of whose peers the time is up, but for those that change anyway: hold
// takes care of them.
func (m moves) due(at time.Time, changing map[string]zone.Change) []zone.Change {
	var changes []zone.Change
	for name, before := range m.objects {
		if _, ok := changing[name]; ok || before.held[0].until.After(at) {
			continue
		}
		next := &moving{said: before.said}
		next.keep(before.held, at)
		changes = append(changes, m.put(next))
	}
	return changes
}

// next returns when due has something to do.
func (m moves) next() (next time.Time, ok bool) {
	for _, o := range m.objects {
		if until := o.held[0].until; !ok || until.Before(next) {
			next, ok = until, true
		}
	}
	return next, ok
}

// put remembers the object if it has held peers, and returns its change with them.
func (m moves) put(o *moving) zone.Change {
	if len(o.held) == 0 {
		delete(m.objects, o.said.Object)
		return o.said
	}
	m.objects[o.said.Object] = o
	c := o.said
	c.Peers = append([]zone.Peer(nil), c.Peers...)
	for _, h := range o.held {
		c.Peers = append(c.Peers, h.Peer)
	}
	return c
}

// keep holds on to those peers for which there is still time and of which the object says nothing.
func (o *moving) keep(held []heldPeer, at time.Time) {
	spoken := addressesOf(o.said)
	for _, h := range held {
		if rest := without(h.Peer, spoken); h.until.After(at) && len(rest.Addrs) > 0 {
			o.held = append(o.held, heldPeer{rest, h.until})
		}
	}
}

// addressesOf returns every address that the object speaks of, as peer or as exclusion.
func addressesOf(c zone.Change) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for i := range c.Peers {
		for _, addr := range c.Peers[i].Addrs {
			addrs[addr] = true
		}
	}
	for i := range c.Excluded {
		for _, addr := range c.Excluded[i].Addrs {
			addrs[addr] = true
		}
	}
	return addrs
}

// without returns the peer without the given addresses.
func without(peer zone.Peer, addrs map[netip.Addr]bool) zone.Peer {
	var rest []netip.Addr
	for _, addr := range peer.Addrs {
		if !addrs[addr] {
			rest = append(rest, addr)
		}
	}
	peer.Addrs = rest
	return peer
}
