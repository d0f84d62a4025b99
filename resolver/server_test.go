package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// patience is how long a test waits for what must come at once.
const patience = 10 * time.Second

// serving is a server that runs for one test.
type serving struct {
	*Server
	end  context.CancelFunc // returns at once
	done chan error         // what Serve returned
}

func serve(t *testing.T, zones Viewer, addrs ...string) *serving {
	t.Helper()
	opts := Options{}
	for _, addr := range addrs {
		opts.Listen = append(opts.Listen, netip.MustParseAddrPort(addr))
	}
	return serveOptions(t, zones, opts)
}

func serveOptions(t *testing.T, zones Viewer, opts Options) *serving {
	t.Helper()
	server, err := Listen(opts, zones)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &serving{Server: server, end: end, done: make(chan error, 1)}
	go func() { s.done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-s.done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		s.done <- nil // for who ends a server twice
	})
	return s
}

func (s *serving) dial(t *testing.T, network string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func write(t *testing.T, conn io.Writer, octets []byte) {
	t.Helper()
	if _, err := conn.Write(octets); err != nil {
		t.Fatal(err)
	}
}

// framed returns questions for the A records of names, with identifiers from 1, as they go over TCP.
func framed(t *testing.T, names ...string) []byte {
	t.Helper()
	var frames []byte
	for i, name := range names {
		m := question(name, dns.TypeA)
		m.Id = uint16(1 + i)
		msg := packed(t, m)
		frames = append(binary.BigEndian.AppendUint16(frames, uint16(len(msg))), msg...)
	}
	return frames
}

func readFrame(t *testing.T, conn io.Reader) *dns.Msg {
	t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatalf("no reply: %v", err)
	}
	msg := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, msg); err != nil {
		t.Fatalf("half a reply: %v", err)
	}
	return unpacked(t, msg)
}

func readDatagram(t *testing.T, conn net.Conn) *dns.Msg {
	t.Helper()
	msg := make([]byte, 65535)
	n, err := conn.Read(msg)
	if err != nil {
		t.Fatalf("no reply: %v", err)
	}
	return unpacked(t, msg[:n])
}

func TestUDPAndTCPShareThePort(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		s := serve(t, shop(t), addr)
		if port := s.Addrs()[0].Port(); port == 0 {
			t.Errorf("%s: port 0", addr)
		}
		for _, network := range []string{"udp", "tcp"} {
			client := dns.Client{Net: network, Timeout: patience}
			reply, _, err := client.Exchange(question("web.shop.svc.peers.test.", dns.TypeA), s.Addrs()[0].String())
			if err != nil {
				t.Errorf("%s over %s: %v", addr, network, err)
			} else if len(reply.Answer) != 2 {
				t.Errorf("%s over %s: got\n%s", addr, network, reply)
			}
		}
	}
}

func TestManyClientsReachEverySocket(t *testing.T) {
	s := serve(t, shop(t), "127.0.0.1:0")
	for range 64 {
		conn := s.dial(t, "udp")
		write(t, conn, []byte("too short")) // and no reply to it
		write(t, conn, packed(t, question("db-0.db.shop.svc.peers.test.", dns.TypeAAAA)))
		if reply := readDatagram(t, conn); len(reply.Answer) != 1 {
			t.Fatalf("got\n%s", reply)
		}
	}
}

// A client takes a reply only from the address that it asked. 127.0.0.2 is asked from 127.0.0.1, to which the kernel
// would answer from 127.0.0.1.
func TestAReplyLeavesFromTheAddressThatWasAsked(t *testing.T) {
	wildcards := map[string]netip.Addr{"IPv4": netip.IPv4Unspecified(), "IPv6": netip.IPv6Unspecified(), "both": {}}
	for name, wildcard := range wildcards {
		t.Run(name, func(t *testing.T) {
			s := serveOptions(t, shop(t), Options{Listen: []netip.AddrPort{netip.AddrPortFrom(wildcard, 0)}})
			tested := 0
			if name != "IPv6" {
				tested += askFrom(t, "127.0.0.1", "127.0.0.2", s.Addrs()[0].Port())
			}
			if name != "IPv4" {
				tested += askFrom(t, "::1", "::1", s.Addrs()[0].Port())
				if addr, ok := ownIPv6(t); ok {
					tested += askFrom(t, "::1", addr, s.Addrs()[0].Port())
				}
			}
			if tested == 0 {
				t.Error("nothing was asked")
			}
		})
	}
}

func askFrom(t *testing.T, client, server string, port uint16) int {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	asked := netip.AddrPortFrom(netip.MustParseAddr(server), port)
	if _, err := conn.WriteToUDPAddrPort(packed(t, question("web.shop.svc.peers.test.", dns.TypeA)), asked); err != nil {
		t.Fatal(err)
	}
	_, from, err := conn.ReadFromUDPAddrPort(make([]byte, 4096))
	if err != nil {
		t.Fatalf("no reply from %s: %v", asked, err)
	}
	if from != asked {
		t.Errorf("asked %s, the reply came from %s", asked, from)
	}
	return 1
}

// ownIPv6 returns an address of this machine that is not ::1.
func ownIPv6(t *testing.T) (string, bool) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.To4() == nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String(), true
		}
	}
	return "", false
}

// lines is a log that says when there is a line.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r.Message:
	default:
	}
	return nil
}

func TestReadErrorsDoNotEndAServer(t *testing.T) {
	log := make(lines)
	s := serveOptions(t, shop(t), Options{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Log: slog.New(log),
	})
	for _, socket := range s.sockets[0].udp {
		socket.SetReadDeadline(past)
		for range 3 {
			if got := <-log; got != "read" {
				t.Errorf("logged %q", got)
			}
		}
		socket.SetReadDeadline(time.Time{})
	}
	for range 16 {
		conn := s.dial(t, "udp")
		write(t, conn, packed(t, question("web.shop.svc.peers.test.", dns.TypeA)))
		readDatagram(t, conn)
	}
}

func TestAPortInUseIsOneClearError(t *testing.T) {
	s := serve(t, shop(t), "127.0.0.1:0")
	taken := s.Addrs()[0]
	_, err := Listen(Options{Listen: []netip.AddrPort{taken}}, shop(t))
	if want := "listen tcp " + taken.String() + ": address already in use"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v is not EADDRINUSE", err)
	}

	other, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken = other.LocalAddr().(*net.UDPAddr).AddrPort()
	_, err = Listen(Options{Listen: []netip.AddrPort{taken}}, shop(t))
	if want := "listen udp " + taken.String() + ": address already in use"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	free, err := net.Listen("tcp", taken.String())
	if err != nil {
		t.Fatalf("TCP was left open: %v", err)
	}
	free.Close()

	// All addresses, or none.
	first := netip.MustParseAddrPort(free.Addr().String())
	other.Close()
	if _, err := Listen(Options{Listen: []netip.AddrPort{first, s.Addrs()[0]}}, shop(t)); err == nil {
		t.Error("a taken second address: no error")
	}
	again, err := Listen(Options{Listen: []netip.AddrPort{first}}, shop(t))
	if err != nil {
		t.Fatalf("the first address was left open: %v", err)
	}
	again.close()
}

func TestListenRefuses(t *testing.T) {
	local := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	for name, opts := range map[string]Options{
		"no address":    {},
		"a small size":  {Listen: local, MaxUDPSize: 511},
		"a large size":  {Listen: local, MaxUDPSize: 65508},
		"not ours":      {Listen: append(local, netip.MustParseAddrPort("192.0.2.1:0"))},
		"a port, twice": {Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:20053"), netip.MustParseAddrPort("127.0.0.1:20053")}},
	} {
		if s, err := Listen(opts, shop(t)); err == nil {
			t.Errorf("%s: no error", name)
			s.close()
		}
	}
}

// gate is a Viewer that lets a question in when the test says so.
type gate struct {
	*zone.Store
	entered chan struct{} // a question has come, or begun to wait
	open    chan struct{} // closed: it may go on
}

func newGate(store *zone.Store) *gate {
	return &gate{Store: store, entered: make(chan struct{}, 100), open: make(chan struct{})}
}

func (g *gate) View() *zone.View {
	g.entered <- struct{}{}
	<-g.open
	return g.Store.View()
}

func TestShutdownFinishesTheRepliesInFlight(t *testing.T) {
	g := newGate(shop(t))
	s := serve(t, g, "127.0.0.1:0")
	overUDP, overTCP, idle := s.dial(t, "udp"), s.dial(t, "tcp"), s.dial(t, "tcp")
	write(t, overUDP, packed(t, question("web.shop.svc.peers.test.", dns.TypeA)))
	write(t, overTCP, framed(t, "web.shop.svc.peers.test."))
	<-g.entered
	<-g.entered
	s.end()
	<-s.stopping
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: got %v, want EOF", err)
	}
	close(g.open)
	for _, reply := range []*dns.Msg{readDatagram(t, overUDP), readFrame(t, overTCP)} {
		if len(reply.Answer) != 2 {
			t.Errorf("got\n%s", reply)
		}
	}
	if _, err := overTCP.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last reply: got %v, want EOF", err)
	}
	overTCP.Close()
	idle.Close()
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.done <- nil
	again := serve(t, shop(t), s.Addrs()[0].String()) // nothing is left of the sockets
	again.end()
}

// watched is a Viewer that tells when a question waits.
type watched struct {
	*zone.Store
	waits chan struct{}
}

func (w *watched) Watch() (*zone.View, <-chan struct{}) {
	w.waits <- struct{}{}
	return w.Store.Watch()
}

func TestWaitingQuestionsAreAnsweredInAShutdown(t *testing.T) {
	w := &watched{newStore(t, "peers.test."), make(chan struct{}, 100)}
	s := serve(t, w, "127.0.0.1:0")
	overUDP, overTCP := s.dial(t, "udp"), s.dial(t, "tcp")
	write(t, overUDP, packed(t, question("nosuch.peers.test.", dns.TypeA)))
	write(t, overTCP, framed(t, "nosuch.peers.test."))
	<-w.waits
	<-w.waits
	s.end()
	<-s.stopping
	w.Apply()
	for _, reply := range []*dns.Msg{readDatagram(t, overUDP), readFrame(t, overTCP)} {
		if reply.Rcode != dns.RcodeNameError {
			t.Errorf("got\n%s", reply)
		}
	}
}

// While questions wait for the first sync, those outside the zones are answered, on the same connection too.
func TestOutOfZoneDoesNotWait(t *testing.T) {
	store := newStore(t, "peers.test.")
	s := serve(t, store, "127.0.0.1:0")
	conn := s.dial(t, "tcp")
	write(t, conn, framed(t, "nosuch.peers.test.", "web.other.test."))
	if reply := readFrame(t, conn); reply.Id != 2 || reply.Rcode != dns.RcodeRefused {
		t.Errorf("got\n%s", reply)
	}
	store.Apply()
	if reply := readFrame(t, conn); reply.Id != 1 || reply.Rcode != dns.RcodeNameError {
		t.Errorf("got\n%s", reply)
	}
}
