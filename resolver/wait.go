package resolver

import (
	"bytes"
	"math/rand/v2"
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
func (s *Server) answer(msg []byte, on occasion, rooms waitingRooms, waiting *sync.WaitGroup, send func(reply []byte)) {
	reply, final := s.path.reply(s.zones.View(), msg, on)
	if final {
		if reply != nil {
			s.count(reply, on.over)
			send(reply)
		}
		return
	}
	deadline := time.Now().Add(syncWait)
	rooms.enter() // nobody keeps a seat for longer than syncWait, and writeTimeout over a connection
	msg = bytes.Clone(msg)
	waiting.Go(func() {
		defer rooms.leave()
		reply, _ := s.path.reply(s.awaitSync(deadline), msg, on)
		s.count(reply, on.over)
		send(reply)
	})
}

func (s *Server) count(reply []byte, over proto) {
	if reply[2]&(flagTC>>8) != 0 {
		s.truncated[over].Add(1)
	}
}

// occasion returns that of a question that has just come.
func (s *Server) occasion(client netip.Addr, over proto) occasion {
	on := occasion{client: client, over: over, now: time.Now()}
	if !s.sorted {
		on.turn = rand.Uint32() // chance favours no peer, whatever is asked in between
	}
	return on
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
