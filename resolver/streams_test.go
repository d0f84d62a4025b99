package resolver

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

func TestClientOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "2001:db8::1:2": "2001:db8::/64", "fe80::1%eth0": "fe80::1/128",
	} {
		if got := clientOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
	if clientOf(netip.Addr{}).IsValid() {
		t.Error("a client without an address")
	}
}

// from is a connection with a client's address.
type from struct {
	net.Conn
	client net.IP
}

func (c from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.client} }

func streamFrom(t *testing.T, s *Server, running *sync.WaitGroup, client string) net.Conn {
	ours, server := net.Pipe()
	running.Go(func() { s.serveStream(from{server, net.ParseIP(client)}, tcp) })
	t.Cleanup(func() { ours.Close() })
	return ours
}

// asks tells whether a connection is served.
func asks(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if _, err := conn.Write(framed(t, web)); err != nil {
		return false
	}
	return readFrame(t, conn).Rcode == dns.RcodeSuccess
}

func TestAClientsOwnConnectionMakesRoomForItsNewOne(t *testing.T) {
	view := shop(t)
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view)
		other := streamFrom(t, s, &running, "192.0.2.2") // silent for longer than any
		time.Sleep(time.Second)
		var conns []net.Conn
		for range maxClientStreams {
			conns = append(conns, streamFrom(t, s, &running, "192.0.2.1"))
			time.Sleep(time.Millisecond)
		}
		if !asks(t, conns[0]) {
			t.Error("the bound is too low")
		}
		start := time.Now()
		conns = append(conns, streamFrom(t, s, &running, "192.0.2.1"))
		if got := ended(t, conns[1], start); got != 0 {
			t.Errorf("closed after %v, want at once", got)
		}
		for _, conn := range append(slices.Delete(conns, 1, 2), other) {
			if !asks(t, conn) {
				t.Error("another one was closed")
			}
		}
		if got := s.openStreams(); got != maxClientStreams+1 {
			t.Errorf("%d connections count, want %d", got, maxClientStreams+1)
		}
		running.Wait()
		if len(s.streams.byClient) != 0 {
			t.Errorf("left: %v", s.streams.byClient)
		}
	})
}

// Who waits for the first sync has been silent, but only because we were.
func TestAConnectionThatWaitsIsNotClosedForOneThatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "peers.test.")
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, store)
		waits := streamFrom(t, s, &running, "192.0.2.1")
		write(t, waits, framed(t, "nosuch.peers.test."))
		time.Sleep(time.Second)
		idle := streamFrom(t, s, &running, "192.0.2.1")
		time.Sleep(time.Microsecond)
		for range maxClientStreams - 1 {
			streamFrom(t, s, &running, "192.0.2.1")
			time.Sleep(time.Microsecond)
		}
		ended(t, idle, time.Now())
		if reply := readFrame(t, waits); reply.Rcode != dns.RcodeServerFailure {
			t.Errorf("got\n%s", reply)
		}
		running.Wait()
	})
}

// What a client makes us hold that sends and does not read: one question and one reply of it.
func TestAClientThatReadsNoReplies(t *testing.T) {
	view := shop(t)
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view)
		client := stream(t, s, &running)
		start, frame, sent := time.Now(), framed(t, web), 0
		for {
			n, err := client.Write(frame)
			if sent += n; err != nil {
				break
			}
		}
		if most := 4096 + len(frame); sent > most { // the reader's buffer
			t.Errorf("%d octets were taken, want at most %d", sent, most)
		}
		if got := time.Since(start); got != writeTimeout {
			t.Errorf("closed after %v, want %v", got, writeTimeout)
		}
		running.Wait()
	})
}

func TestAConnectionDoesNotTakeAllSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "peers.test.")
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, store)
		greedy, modest := stream(t, s, &running), stream(t, s, &running)
		go func() { _, _ = greedy.Write(bytes.Repeat(framed(t, "a.peers.test."), 2*maxWaiting)) }()
		synctest.Wait()
		if got := len(s.tcpWaiting); got != maxStreamWaiting {
			t.Errorf("%d questions wait, want %d", got, maxStreamWaiting)
		}
		write(t, modest, framed(t, "b.peers.test."))
		greedy.Close()
		store.Apply()
		readFrame(t, modest)
		running.Wait()
	})
}

// A client that has sent more than we read when we close gets all replies and then EOF: no RST, which would take
// those that it has not read yet.
func TestTheEndIsCleanWithQuestionsUnread(t *testing.T) {
	pair := newPair(t, "ns.test")
	for _, over := range []proto{tcp, tls} {
		g := newGate(shop(t))
		s := serveTLS(t, g, pair.files(t), nil)
		conn := s.dial(t, "tcp")
		if over == tls {
			conn = s.dialTLS(t, pair.trusting("ns.test"))
		}
		write(t, conn, bytes.Repeat(framed(t, web), 1000)) // several buffers, of TLS too
		<-g.entered
		s.end()
		<-s.stopping
		go func() {
			for range g.entered { // makes room for those that are answered
			}
		}()
		close(g.open)
		if n, err := io.Copy(io.Discard, conn); err != nil || n == 0 {
			t.Errorf("%s: %d octets and %v, want some and EOF", over, n, err)
		}
		conn.Close()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		s.done <- nil
		close(g.entered)
	}
}

// A client that goes on sending after our FIN is not read for ever.
func TestLingeringIsBounded(t *testing.T) {
	s := serve(t, shop(t), "127.0.0.1:0")
	conn := s.dial(t, "tcp")
	write(t, conn, framed(t, web))
	readFrame(t, conn)
	s.end()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("got %v, want EOF", err)
	}
	must(t, conn.(*net.TCPConn).SetWriteBuffer(socketBuffer))
	octets, sent := make([]byte, 4096), 0
	for {
		n, err := conn.Write(octets)
		if sent += n; err != nil {
			break
		}
	}
	if most := lingerOctets + 1<<20; sent > most { // the rest is in the kernel's buffers
		t.Errorf("%d octets were taken after the end, want at most %d", sent, most)
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
}
