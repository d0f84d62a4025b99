package resolver

import (
	"bytes"
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
func (s *Server) answer(msg []byte, over proto, room waitingRoom, waiting *sync.WaitGroup, send func(reply []byte)) {
	reply, final := s.path.reply(s.zones.View(), msg, over)
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
