package resolver

import (
	"bufio"
	"bytes"
	cryptotls "crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// String names the transport in the log.
func (p proto) String() string { return [...]string{udp: "udp", tcp: "tcp", tls: "tls"}[p] }

// serveStreams accepts connections until the listener is closed. No other error ends it.
func (s *Server) serveStreams(listener net.Listener, over proto) {
	for failures := 0; ; {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			failures = 0
			s.work.Go(func() { s.serveStream(conn, over) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, or a client that is gone already
			failures++
			if failures&(failures-1) == 0 { // the 1st, 2nd, 4th, 8th…: it may go on for long
				s.log.Warn("accept", "proto", over, "failures", failures, "err", err)
			}
			if !s.pause(failures) {
				return
			}
		}
	}
}

// serveStream answers the questions of one connection in their order, and closes it: when the client has no more
// questions, is silent or slow for too long, or takes no reply, or when the server ends.
func (s *Server) serveStream(conn net.Conn, over proto) {
	c := s.newStream(conn, over)
	s.streams.add(c)
	defer s.streams.remove(c)
	defer c.end()
	if err := c.handshake(); err != nil {
		s.log.Debug("handshake", "proto", over, "client", c.RemoteAddr(), "err", err)
		return
	}
	reader := bufio.NewReader(c)
	for {
		msg, err := c.readFrame(reader)
		if err != nil {
			break
		}
		s.answer(msg, s.occasion(c.client, over), waitingRooms{c.room, s.tcpWaiting}, &c.waiting, func(reply []byte) {
			if err := c.writeFrame(reply); err != nil {
				s.log.Debug("write", "proto", over, "client", c.RemoteAddr(), "err", err)
				c.abort()
			}
		})
	}
	// The client may have closed its half only, and still be there for the replies that wait.
	c.waiting.Wait()
}

// streamConn is one connection. Its Close is not to be called: see end and abort.
type streamConn struct {
	net.Conn          // what is spoken: raw itself, or TLS over it
	raw      net.Conn // TCP
	client   netip.Addr

	stopping <-chan struct{} // the server's
	asked    atomic.Int64    // when the last question came, in nanoseconds
	room     waitingRoom     // the questions that wait for the first sync
	waiting  sync.WaitGroup  // the same
	frame    bytes.Buffer    // the reader's

	writing sync.Mutex // held for one reply, so that replies do not mix
}

func (s *Server) newStream(conn net.Conn, over proto) *streamConn {
	c := &streamConn{Conn: conn, raw: conn, stopping: s.stopping, room: make(waitingRoom, maxStreamWaiting)}
	if addr, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		c.client = addr.AddrPort().Addr().Unmap()
	}
	if socket, ok := conn.(*net.TCPConn); ok {
		// Where it cannot be set the system has its own bound.
		_ = socket.SetReadBuffer(socketBuffer)
		_ = socket.SetWriteBuffer(socketBuffer)
	}
	if over == tls {
		c.Conn = cryptotls.Server(conn, s.cert.config.Load())
	}
	return c
}

// end closes the connection so that all that was written arrives: with close_notify in TLS (RFC 5246 §7.2.1), then FIN,
// and no RST while the client may still be reading.
func (c *streamConn) end() {
	if conn, ok := c.Conn.(*cryptotls.Conn); ok {
		_ = conn.CloseWrite() // fails if there was no handshake, and where abort was first
	}
	if socket, ok := c.raw.(*net.TCPConn); ok && socket.CloseWrite() == nil {
		socket.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.CopyN(io.Discard, socket, lingerOctets)
	}
	c.raw.Close()
}

// abort closes the connection of a client that takes no replies, and what the kernel holds for it goes too.
func (c *streamConn) abort() {
	if socket, ok := c.raw.(*net.TCPConn); ok {
		_ = socket.SetLinger(0)
	}
	c.raw.Close()
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
