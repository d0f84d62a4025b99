package resolver

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"peerdns/zone"
)

// syncWait is how long a question waits for the first sync before it is told SERVFAIL. One SERVFAIL is enough for
// libcluster to let go of every node, whereas 3 seconds of silence do no harm.
const syncWait = 2 * time.Second

// maxWaiting is how many questions of one transport wait at once. Each costs a goroutine and its own few octets.
const maxWaiting = 1024

// waitingRoom has a seat for each question that waits.
type waitingRoom chan struct{}

// answer sends the reply to a message, if there is one: at once, or, if it is too early, from another goroutine as
// soon as the zones are synced. It blocks only while all seats of the room are taken: then its caller reads no more,
// and further questions stay in the socket's buffer. The message is the caller's again when it returns. Waiting for
// the group that was given waits for the replies.
func (s *Server) answer(msg []byte, on occasion, room waitingRoom, waiting *sync.WaitGroup, send func(reply []byte)) {
	reply, final := s.path.reply(s.zones.View(), msg, on)
	if final {
		if reply != nil {
			send(reply)
		}
		return
	}
	deadline := time.Now().Add(syncWait)
	room <- struct{}{} // for syncWait at most: nobody keeps a seat for longer
	msg = bytes.Clone(msg)
	waiting.Go(func() {
		defer func() { <-room }()
		reply, _ := s.path.reply(s.awaitSync(deadline), msg, on)
		send(reply)
	})
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
