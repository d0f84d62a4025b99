package resolver

import (
	"bytes"
	"net/netip"
	"sync"
	"time"

	"peerdns/zone"
)

// waitingRoom has a seat for each question that waits.
type waitingRoom chan struct{}

// waitingRooms are the rooms in which a question needs a seat, in the order in which it takes them.
type waitingRooms []waitingRoom

func (rooms waitingRooms) enter() {
	for _, room := range rooms {
		room <- struct{}{}
	}
}

func (rooms waitingRooms) leave() {
	for _, room := range rooms {
		<-room
	}
}

// answer sends the reply to a message, if there is one: at once, or, if it is too early, from another goroutine as
// soon as the zones are synced. It blocks only while all seats of a room are taken: then its caller reads no more,
// and further questions stay in the socket's buffer. The message is the caller's again when it returns. Waiting for
// the group that was given waits for the replies.
func (s *Server) answer(
	msg []byte, client netip.Addr, over proto, rooms waitingRooms, waiting *sync.WaitGroup, send func(reply []byte),
) {
	if !s.allow.has(client) {
		if reply := s.path.prohibit(msg, over); reply != nil {
			send(reply)
		}
		return
	}
	reply, final := s.path.reply(s.zones.View(), msg, over)
	if final {
		if reply != nil {
			send(reply)
		}
		return
	}
	deadline := time.Now().Add(syncWait)
	rooms.enter() // nobody keeps a seat for longer than syncWait, and writeTimeout over a connection
	msg = bytes.Clone(msg)
	waiting.Go(func() {
		defer rooms.leave()
		reply, _ := s.path.reply(s.awaitSync(deadline), msg, over)
		send(reply)
	})
}

// awaitSync returns the first view that is synced, or what there is at the deadline.
func (s *Server) awaitSync(deadline time.Time) *zone.View {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		view, changed := s.zones.Watch()
		if view.Synced() {
			return view
		}
		select {
		case <-changed:
		case <-timer.C:
			return view
		}
	}
}
