package resolver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of TCP (RFC 7766 §6.1, §6.2, §10).
const (
	maxStreams   = 1024             // connections at once; one more closes the one that has been silent for longest
	idleTimeout  = 10 * time.Second // without a new question
	frameTimeout = 5 * time.Second  // for all of a question, from its first octet
	writeTimeout = 5 * time.Second  // for a reply
	keptFrame    = 4096             // octets of buffer that a connection keeps between questions
)

// serveTCP accepts connections until the listener is closed. No other error ends it.
func (s *Server) serveTCP(listener net.Listener) {
	for failures := 0; ; {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			failures = 0
			s.work.Go(func() { s.serveStream(conn) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, or a client that is gone already
			failures++
			if failures&(failures-1) == 0 { // the 1st, 2nd, 4th, 8th…: it may go on for long
				s.log.Warn("accept", "proto", "tcp", "failures", failures, "err", err)
			}
			if !s.pause(failures) {
				return
			}
		}
	}
}

// serveStream answers the questions of one connection in their order, and closes it: when the client has no more
// questions, is silent or slow for too long, or takes no reply, or when the server ends.
func (s *Server) serveStream(conn net.Conn) {
	c := &streamConn{Conn: conn, stopping: s.stopping}
	var client netip.Addr // a pipe has none
	if remote, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		client = remote.AddrPort().Addr()
	}
	s.streams.add(c)
	defer s.streams.remove(c)
	reader := bufio.NewReader(conn)
	for {
		msg, err := c.readFrame(reader)
		if err != nil {
			break
		}
		s.answer(msg, s.occasion(client, tcp), s.tcpWaiting, &c.waiting, func(reply []byte) {
			if err := c.writeFrame(reply); err != nil {
				s.log.Debug("write", "proto", "tcp", "client", c.RemoteAddr(), "err", err)
				c.Close()
			}
		})
	}
	// The client may have closed its half only, and still be there for the replies that wait.
	c.waiting.Wait()
	c.Close()
}

// streamConn is one connection.
type streamConn struct {
	net.Conn
	stopping <-chan struct{} // the server's
	asked    atomic.Int64    // when the last question came, in nanoseconds
	waiting  sync.WaitGroup  // questions that wait for the first sync
	frame    bytes.Buffer    // the reader's

	writing sync.Mutex // held for one reply, so that replies do not mix
}

// readFrame reads one message with its length before it (RFC 1035 §4.2.2). It is valid until the next call.
func (c *streamConn) readFrame(r *bufio.Reader) ([]byte, error) {
	if r.Buffered() == 0 {
		c.readUntil(time.Now().Add(idleTimeout))
		if _, err := r.Peek(1); err != nil {
			return nil, err
		}
	}
	c.readUntil(time.Now().Add(frameTimeout))
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	if c.frame.Reset(); c.frame.Cap() > keptFrame {
		c.frame = bytes.Buffer{}
	}
	// The buffer grows as octets come: who announces many and sends none takes no memory.
	if _, err := io.CopyN(&c.frame, r, int64(binary.BigEndian.Uint16(size[:]))); err != nil {
		return nil, err
	}
	c.asked.Store(time.Now().UnixNano())
	return c.frame.Bytes(), nil
}

// readUntil sets the deadline for reading, unless the server ends. Server.stop closes the channel before it sets its
// own deadline, so that whichever of both comes last, that one stands.
func (c *streamConn) readUntil(deadline time.Time) {
	c.SetReadDeadline(deadline)
	select {
	case <-c.stopping:
		c.SetReadDeadline(past)
	default:
	}
}

// writeFrame writes a reply and its length in one piece (RFC 7766 §8).
func (c *streamConn) writeFrame(reply []byte) error {
	frame := make([]byte, 2, 2+len(reply))
	binary.BigEndian.PutUint16(frame, uint16(len(reply)))
	frame = append(frame, reply...)
	c.writing.Lock()
	defer c.writing.Unlock()
	c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.Write(frame)
	return err
}

// streams is the set of open connections. The zero value is empty.
type streams struct {
	mu  sync.Mutex // guards all
	all map[*streamConn]bool
}

// add takes a connection in. If there are too many, the one that has not asked for longest is closed: many silent
// ones cannot keep others out.
func (s *streams) add(c *streamConn) {
	c.asked.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*streamConn]bool)
	}
	if len(s.all) >= maxStreams {
		var oldest *streamConn
		for other := range s.all {
			if oldest == nil || other.asked.Load() < oldest.asked.Load() {
				oldest = other
			}
		}
		delete(s.all, oldest)
		oldest.Close()
	}
	s.all[c] = true
}

func (s *streams) remove(c *streamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// each calls f for every connection; f must not call streams.
func (s *streams) each(f func(*streamConn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		f(c)
	}
}
