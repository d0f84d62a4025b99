package resolver

import (
	"net/netip"
	"sync"
	"time"
)

// streams is the set of open connections. The zero value is empty.
type streams struct {
	mu       sync.Mutex // guards all that follows
	all      map[*streamConn]bool
	byClient map[netip.Prefix]int // how many each client has
}

// clientOf returns what counts as one client: an IPv4 address, or an IPv6 /64, but each link-local address, as all of
// these are in one. It is not valid without an address.
func clientOf(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() && !addr.IsLinkLocalUnicast() {
		bits = 64
	}
	client, _ := addr.Prefix(bits) // fails for the zero address only
	return client
}

// add takes a connection in. If its client, or all clients, have too many, it closes another one.
func (s *streams) add(c *streamConn) {
	c.asked.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*streamConn]bool)
		s.byClient = make(map[netip.Prefix]int)
	}
	client := clientOf(c.client)
	switch {
	case client.IsValid() && s.byClient[client] >= maxClientStreams:
		s.evict(func(other *streamConn) bool { return clientOf(other.client) == client })
	case len(s.all) >= maxStreams:
		s.evict(func(*streamConn) bool { return true })
	}
	s.all[c] = true
	s.byClient[client]++
}

// evict closes the connection that has been silent for longest among those that match, and one that still has to get
// a reply only if all have. It does not wait for the client, not even to say goodbye in TLS.
func (s *streams) evict(matches func(*streamConn) bool) {
	var victim *streamConn
	for c := range s.all {
		if matches(c) && (victim == nil || c.moreIdle(victim)) {
			victim = c
		}
	}
	s.drop(victim)
	victim.raw.Close()
}

func (c *streamConn) moreIdle(than *streamConn) bool {
	if busy, other := len(c.room) > 0, len(than.room) > 0; busy != other {
		return other
	}
	return c.asked.Load() < than.asked.Load()
}

func (s *streams) remove(c *streamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[c] {
		s.drop(c)
	}
}

func (s *streams) drop(c *streamConn) {
	delete(s.all, c)
	client := clientOf(c.client)
	if s.byClient[client]--; s.byClient[client] == 0 {
		delete(s.byClient, client)
	}
}

// each calls f for every connection; f must not call streams.
func (s *streams) each(f func(*streamConn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		f(c)
	}
}
