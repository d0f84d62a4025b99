package resolver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

const web = "web.shop.svc.peers.test."

func TestFramesGluedAndSplit(t *testing.T) {
	pair := newPair(t, "ns.test")
	s := serveTLS(t, shop(t), pair.files(t), nil)
	for name, send := range map[string]func(conn net.Conn, frames []byte){
		"glued": func(conn net.Conn, frames []byte) { write(t, conn, frames) },
		"split": func(conn net.Conn, frames []byte) {
			for i := range frames {
				write(t, conn, frames[i:i+1])
			}
		},
		"a frame and a half": func(conn net.Conn, frames []byte) {
			write(t, conn, frames[:len(frames)/2])
			readFrame(t, conn)
			write(t, conn, frames[len(frames)/2:])
		},
	} {
		for over, conn := range map[proto]net.Conn{tcp: s.dial(t, "tcp"), tls: s.dialTLS(t, pair.trusting("ns.test"))} {
			send(conn, framed(t, web, "nosuch.peers.test.", web))
			for id := uint16(1); id <= 3; id++ {
				if name == "a frame and a half" && id == 1 {
					continue // read already
				}
				if reply := readFrame(t, conn); reply.Id != id {
					t.Errorf("%s over %s: reply %d came where %d should", name, over, reply.Id, id)
				}
			}
		}
	}
}

func TestOctetsWithoutSenseDoNotEndAConnection(t *testing.T) {
	conn := serve(t, shop(t), "127.0.0.1:0").dial(t, "tcp")
	write(t, conn, []byte{0, 0, 0, 3, 1, 2, 3})
	write(t, conn, framed(t, web))
	if reply := readFrame(t, conn); len(reply.Answer) != 2 {
		t.Errorf("got\n%s", reply)
	}
}

func TestHalfClose(t *testing.T) {
	pair := newPair(t, "ns.test")
	store := newStore(t, "peers.test.")
	s := serveTLS(t, store, pair.files(t), nil)
	conns := map[proto]net.Conn{tcp: s.dial(t, "tcp"), tls: s.dialTLS(t, pair.trusting("ns.test"))}
	for _, conn := range conns {
		write(t, conn, framed(t, "a.peers.test.", "b.peers.test."))
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	store.Apply()
	for over, conn := range conns {
		ids := readFrame(t, conn).Id + readFrame(t, conn).Id
		if ids != 1+2 {
			t.Errorf("%s: identifiers add up to %d, want 3", over, ids)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %v, want EOF", over, err)
		}
	}
}

// halfClosed is a connection on which some octets come and then no more.
type halfClosed struct {
	net.Conn
	octets io.Reader
}

func (c halfClosed) Read(p []byte) (int, error) { return c.octets.Read(p) }

func TestAHalfClosedConnectionStaysForTheRepliesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "peers.test.")
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, store)
		client, server := net.Pipe()
		var running sync.WaitGroup
		running.Go(func() { s.serveStream(halfClosed{server, bytes.NewReader(framed(t, "nosuch.peers.test."))}, tcp) })
		synctest.Wait() // the server has read the end
		store.Apply()
		if reply := readFrame(t, client); reply.Rcode != dns.RcodeNameError {
			t.Errorf("got\n%s", reply)
		}
		ended(t, client, time.Now())
		running.Wait()
	})
}

// stream runs one connection without a socket, in a bubble of time, and returns the client's end.
func stream(t *testing.T, s *Server, running *sync.WaitGroup) net.Conn {
	client, server := net.Pipe()
	running.Go(func() { s.serveStream(server, tcp) })
	t.Cleanup(func() { client.Close() })
	return client
}

// openStreams returns how many connections count.
func (s *Server) openStreams() int {
	n := 0
	s.streams.each(func(*streamConn) { n++ })
	return n
}

// ended waits until the connection is closed and returns when, without octets before.
func ended(t *testing.T, conn net.Conn, start time.Time) time.Duration {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %d octets and %v, want EOF", n, err)
	}
	return time.Since(start)
}

func TestTimeoutsOfAConnection(t *testing.T) {
	frame := framed(t, web)
	view := shop(t)
	for _, c := range []struct {
		name string
		talk func(t *testing.T, conn net.Conn)
		want time.Duration
	}{
		{"an idle one", func(*testing.T, net.Conn) {}, idleTimeout},
		{"one idle after a reply", func(t *testing.T, conn net.Conn) {
			time.Sleep(9 * time.Second)
			write(t, conn, frame)
			readFrame(t, conn)
		}, 9*time.Second + idleTimeout},
		{"one that stops in the length", func(t *testing.T, conn net.Conn) { write(t, conn, frame[:1]) }, frameTimeout},
		{"one that sends an octet each second", func(_ *testing.T, conn net.Conn) {
			for _, octet := range frame {
				if _, err := conn.Write([]byte{octet}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, frameTimeout},
		{"one that takes no reply", func(t *testing.T, conn net.Conn) {
			write(t, conn, frame)
		}, writeTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running, talking sync.WaitGroup
				start := time.Now()
				conn := stream(t, newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view), &running)
				talking.Go(func() { c.talk(t, conn) })
				running.Wait()
				if got := time.Since(start); got != c.want {
					t.Errorf("closed after %v, want %v", got, c.want)
				}
				talking.Wait()
				ended(t, conn, start)
			})
		})
	}
}

func TestOneConnectionTooManyClosesTheOneSilentForLongest(t *testing.T) {
	view := shop(t)
	frame := framed(t, web)
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view)
		first := stream(t, s, &running)
		time.Sleep(time.Second)
		second := stream(t, s, &running)
		time.Sleep(time.Second)
		for range maxStreams - 2 {
			stream(t, s, &running)
		}
		synctest.Wait()
		write(t, first, frame)
		readFrame(t, first)
		start := time.Now()
		last := stream(t, s, &running)
		if got := ended(t, second, start); got != 0 {
			t.Errorf("the second one was closed after %v, want at once", got)
		}
		for _, conn := range []net.Conn{first, last} {
			write(t, conn, frame)
			if reply := readFrame(t, conn); reply.Rcode != dns.RcodeSuccess {
				t.Errorf("got\n%s", reply)
			}
		}
		running.Wait()
		if n := s.openStreams(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// A connection that comes in, or sets its deadline, while the server ends must not outlive it.
func TestAConnectionAfterTheEndReadsNothing(t *testing.T) {
	view := shop(t)
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view)
		s.stop()
		start := time.Now()
		conn := stream(t, s, &running)
		running.Wait()
		if got := ended(t, conn, start); got != 0 {
			t.Errorf("closed after %v, want at once", got)
		}
	})
}
