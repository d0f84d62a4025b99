package resolver

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// await lets others run until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// leavesNothing returns a function that checks that there are no more descriptors and goroutines than now, and no
// memory of note.
func leavesNothing(t *testing.T) (check func()) {
	t.Helper()
	if conn, err := net.ListenUDP("udp4", nil); err == nil { // what the runtime needs for its first socket stays
		conn.Close()
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools take two
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	fds, goroutines, octets := descriptors(t), runtime.NumGoroutine(), heap()
	return func() {
		t.Helper()
		if got := descriptors(t); got != fds {
			t.Errorf("%d descriptors, %d before", got, fds)
		}
		await(t, "goroutines are as many as before", func() bool { return runtime.NumGoroutine() <= goroutines })
		if got := heap(); got > octets+4<<20 {
			t.Errorf("%d octets of memory, %d before", got, octets)
		}
	}
}

func (s *serving) finish(t *testing.T) {
	t.Helper()
	s.end()
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.done <- nil
}

func TestShutdownLeavesNothing(t *testing.T) {
	pair := newPair(t, "ns.test")
	files, store := pair.files(t), newStore(t, "peers.test.")
	check := leavesNothing(t)
	s := serveTLS(t, store, files, nil)
	overTLS := s.dialTLS(t, pair.trusting("ns.test"))
	handshake, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	idle, slow, waits, overUDP := s.dial(t, "tcp"), s.dial(t, "tcp"), s.dial(t, "tcp"), s.dial(t, "udp")
	write(t, slow, []byte{0})
	for _, conn := range []net.Conn{overTLS, waits} {
		write(t, conn, framed(t, "a.peers.test.", "b.peers.test."))
	}
	write(t, overUDP, packed(t, question("a.peers.test.", dns.TypeA)))
	await(t, "all are in", func() bool { return s.openStreams() == 5 && len(s.tcpWaiting) == 4 && len(s.udpWaiting[0]) == 1 })
	s.end()
	store.Apply()
	for _, conn := range []net.Conn{overTLS, handshake, idle, slow, waits} {
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	readDatagram(t, overUDP)
	overUDP.Close()
	s.finish(t)
	check()
}

// attack is one run of all that is hostile.
type attack struct {
	t     *testing.T
	s     *serving
	mu    sync.Mutex
	conns []net.Conn // closed at the end
}

// connect opens a connection from one of many addresses, and leaves it open.
func (a *attack) connect(addr string, client byte) net.Conn {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, client)}, Timeout: patience}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		a.t.Errorf("from %d: %v", client, err)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, conn)
	return conn
}

// idle opens n connections, of which every fourth stops within a frame or a handshake.
func (a *attack) idle(addr string, n int) {
	for i := range n {
		if conn := a.connect(addr, byte(1+i%12)); conn != nil && i%4 == 0 {
			_, _ = conn.Write([]byte{0, 200, 1}[:1+i%3])
		}
	}
}

// garbage sends random octets and reads what comes. It may be closed at any time.
func (a *attack) garbage(addr string, random *rand.ChaCha8) {
	conn := a.connect(addr, 100)
	if conn == nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	octets := make([]byte, 512)
	for range 512 {
		_, _ = random.Read(octets)
		octets[0], octets[1] = 0, 254 // a length now and then
		if _, err := conn.Write(octets); err != nil {
			return
		}
	}
}

// deaf sends questions and reads no reply.
func (a *attack) deaf(addr string) {
	if conn := a.connect(addr, 101); conn != nil {
		for range 100 {
			if _, err := conn.Write(framed(a.t, web, web, web)); err != nil {
				return
			}
		}
	}
}

// flood sends garbage over UDP and asks in between; every question must get its answer. Waiting for it bounds how
// much there is in the server's buffer at once: what the kernel drops, nobody can answer.
func (a *attack) flood(random *rand.ChaCha8, rounds, burst int) {
	conn, err := net.Dial("udp", a.s.Addrs()[0].String())
	if err != nil {
		a.t.Error(err)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	msg, buf := packed(a.t, question(web, dns.TypeA)), make([]byte, 4096)
	for round := range rounds {
		for range burst {
			octets := make([]byte, random.Uint64()%100)
			_, _ = random.Read(octets)
			if len(octets) > 1 {
				octets[0] = 0xFF // no identifier of ours
			}
			if _, err := conn.Write(octets); err != nil {
				a.t.Error(err)
				return
			}
		}
		binary.BigEndian.PutUint16(msg, uint16(round))
		if _, err := conn.Write(msg); err != nil {
			a.t.Error(err)
			return
		}
		for {
			n, err := conn.Read(buf)
			if err != nil {
				a.t.Errorf("round %d: no reply: %v", round, err)
				return
			}
			if n > headerLen && binary.BigEndian.Uint16(buf) == uint16(round) {
				if got := binary.BigEndian.Uint16(buf[6:]); got != 2 {
					a.t.Errorf("round %d: %d answers, want 2", round, got)
				}
				break
			}
		}
	}
}

// More connections than there may be, handshakes and frames that do not end, clients that do not read, garbage over
// every transport, all at once: meanwhile each question over UDP is answered, at its height others still get through
// over TCP and TLS, and nothing is left of it.
func TestAHostileHourInAMinute(t *testing.T) {
	var limit syscall.Rlimit // Go has raised it to what it may be
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	clients := 3000
	if room := int(min(limit.Cur, 1<<20)) - maxStreams - 512; room < clients {
		if clients = room; clients < 100 {
			t.Fatalf("%d descriptors: want 2000 or more (ulimit -n)", limit.Cur)
		}
	}
	pair := newPair(t, "ns.test")
	files, view := pair.files(t), shop(t)
	check := leavesNothing(t)
	s := serveTLS(t, view, files, nil)
	overTCP, overTLS := s.Addrs()[0].String(), s.TLSAddrs()[0].String()
	a := &attack{t: t, s: s}
	var all sync.WaitGroup
	all.Go(func() { a.idle(overTCP, clients/2) })
	all.Go(func() { a.idle(overTLS, clients/2) })
	for i := range byte(4) {
		all.Go(func() { a.garbage(overTCP, rand.NewChaCha8([32]byte{0, i})) })
		all.Go(func() { a.garbage(overTLS, rand.NewChaCha8([32]byte{1, i})) })
		all.Go(func() { a.deaf(overTCP) })
		all.Go(func() { a.flood(rand.NewChaCha8([32]byte{2, i}), 500, 16) })
	}
	all.Wait()
	for _, conn := range []net.Conn{s.dial(t, "tcp"), s.dialTLS(t, pair.trusting("ns.test"))} {
		write(t, conn, framed(t, web))
		if reply := readFrame(t, conn); len(reply.Answer) != 2 {
			t.Errorf("got\n%s", reply)
		}
		conn.Close()
	}
	if got := s.openStreams(); got > maxStreams {
		t.Errorf("%d connections, want at most %d", got, maxStreams)
	}
	for _, conn := range a.conns {
		conn.Close()
	}
	await(t, "no connection is left", func() bool { return s.openStreams() == 0 })
	a.flood(rand.NewChaCha8([32]byte{3}), 1, 0)
	s.finish(t)
	a.conns = nil
	check()
}
