package resolver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// A Viewer gives the state of all zones to answer from. *zone.Store is one. Any goroutine may call it, at any time;
// View is called for every question and must be cheap.
type Viewer interface {
	// View returns the state now, never nil.
	View() *zone.View
	// Watch returns the state now and a channel that closes when it is out of date.
	Watch() (*zone.View, <-chan struct{})
}

// Options say how to serve.
type Options struct {
	// Listen has the addresses to answer on, UDP and TCP both. 0.0.0.0 is every IPv4 address, :: every IPv6 address,
	// and the zero netip.Addr every address of both. Port 0 is a free port, the same for UDP and TCP.
	Listen []netip.AddrPort

	// ListenTLS has the addresses to answer on over TLS (RFC 7858), in the same form; TLS is needed with it.
	ListenTLS []netip.AddrPort
	TLS       TLSFiles

	// Allow has the ranges of those who may ask; others are told REFUSED (RFC 8914 §4.19). None: everyone.
	Allow []netip.Prefix

	// Sorted keeps the records of an answer in canonical order. Otherwise each reply begins with another record.
	Sorted bool

	// ServerID is what tells this server from others of the same address: NSID (RFC 5001), id.server (RFC 4892). It has
	// at most MaxServerID octets; "" tells nothing.
	ServerID string

	// Version is what version.server says of the software (RFC 4892). "" tells nothing.
	Version string

	// NotReady says for what the first sync waits, in a few words for people: the text of the extended error of a reply
	// before it. Any goroutine may call it. nil says nothing.
	NotReady func() string

	// Stale says since when the zones are old and why, in a few words for people: the text of the extended error of
	// replies meanwhile. "" while they are not. Any goroutine may call it, for every reply with OPT. nil: never.
	Stale func() string

	// MaxUDPSize is the size of the largest reply over UDP, whatever the client would take, and what our OPT says:
	// 512 to 65507 octets. 0 means DefaultMaxUDPSize.
	MaxUDPSize int

	Log *slog.Logger // nil discards
}

// DefaultMaxUDPSize is what passes unfragmented nearly everywhere (DNS flag day 2020).
const DefaultMaxUDPSize = 1232 // octets

// MaxServerID is the length of the longest ServerID: a negative reply still fits in 512 octets then.
const MaxServerID = 64 // octets

// MaxUDPSize is the most that IPv4 carries over UDP.
const MaxUDPSize = 65535 - 20 - 8 // octets

// grace is how long replies in flight may take once the server ends. It is longer than a question waits for the first
// sync, so that this promise is kept too.
const grace = syncWait + time.Second

// Server answers questions on its sockets. Listen makes one.
type Server struct {
	path     messagePath
	sorted   bool
	zones    Viewer
	log      *slog.Logger
	addrs    []netip.AddrPort
	tlsAddrs []netip.AddrPort
	sockets  []endpoint
	cert     *certificate // nil without TLS

	truncated [tls + 1]atomic.Uint64 // replies with TC, by transport

	stopping   chan struct{}  // closed when the server ends: nothing is read any more
	work       sync.WaitGroup // loops, connections, waiting questions
	udpWaiting waitingRooms
	tcpWaiting waitingRoom
	streams    streams
}

// endpoint is one address with its sockets: those of UDP share the port, the kernel spreads the clients over them.
// There are none of UDP where the connections speak TLS.
type endpoint struct {
	tcp    net.Listener
	stream proto // what its connections speak: tcp or tls
	udp    []*udpSocket
}

// Listen opens all sockets, or none. Its error names the transport and the address, or the file of the certificate or
// key; if an address is in use it is syscall.EADDRINUSE. From then on questions gather in the sockets' buffers until
// Serve answers them.
func Listen(opts Options, zones Viewer) (*Server, error) {
	if opts.MaxUDPSize == 0 {
		opts.MaxUDPSize = DefaultMaxUDPSize
	}
	if opts.MaxUDPSize < dns.MinMsgSize || opts.MaxUDPSize > MaxUDPSize {
		return nil, fmt.Errorf("UDP size %d: want %d to %d octets", opts.MaxUDPSize, dns.MinMsgSize, MaxUDPSize)
	}
	if slices.ContainsFunc(opts.Allow, func(p netip.Prefix) bool { return !p.IsValid() || p.Addr().Is4In6() }) {
		return nil, fmt.Errorf("allow %v: want valid prefixes, and those of IPv4 not as IPv6", opts.Allow)
	}
	if len(opts.ServerID) > MaxServerID {
		return nil, fmt.Errorf("server ID of %d octets: want at most %d", len(opts.ServerID), MaxServerID)
	}
	if len(opts.Listen)+len(opts.ListenTLS) == 0 {
		return nil, errors.New("no address to listen on")
	}
	s := newServer(opts, zones)
	var err error
	if len(opts.ListenTLS) > 0 {
		if s.cert, err = loadCertificate(opts.TLS, s.log); err != nil {
			return nil, err
		}
	}
	if s.addrs, err = s.openAll(opts.Listen, open); err == nil {
		s.tlsAddrs, err = s.openAll(opts.ListenTLS, openTLS)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.warnOfBuffers()
	return s, nil
}

// warnOfBuffers says once if the kernel keeps fewer datagrams than it was asked to.
func (s *Server) warnOfBuffers() {
	for _, e := range s.sockets {
		for _, socket := range e.udp {
			if size, ok := receiveBuffer(socket); ok && size < udpBuffer {
				s.log.Warn("small UDP buffers: bursts may be lost, raise net.core.rmem_max", "octets", size, "want", udpBuffer)
				return
			}
		}
	}
}

func (s *Server) openAll(
	addrs []netip.AddrPort, open func(netip.AddrPort) (endpoint, netip.AddrPort, error),
) (all []netip.AddrPort, err error) {
	for _, addr := range addrs {
		e, bound, err := open(addr)
		if err != nil {
			return nil, err
		}
		s.sockets = append(s.sockets, e)
		all = append(all, bound)
	}
	return all, nil
}

// newServer returns a Server without sockets.
func newServer(opts Options, zones Viewer) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		path: messagePath{
			maxUDPSize: opts.MaxUDPSize, allow: opts.Allow, serverID: opts.ServerID, version: opts.Version,
			notReady: opts.NotReady, stale: opts.Stale, cookies: newCookies(time.Now()),
		},
		sorted:     opts.Sorted,
		zones:      zones,
		log:        opts.Log,
		stopping:   make(chan struct{}),
		udpWaiting: waitingRooms{make(waitingRoom, maxWaiting)},
		tcpWaiting: make(waitingRoom, maxWaiting),
	}
}

// Addrs returns the addresses in the order of Options.Listen, with the ports that they really have. Each stands for
// UDP and TCP.
func (s *Server) Addrs() []netip.AddrPort { return slices.Clone(s.addrs) }

// TLSAddrs returns the addresses in the order of Options.ListenTLS, with the ports that they really have.
func (s *Server) TLSAddrs() []netip.AddrPort { return slices.Clone(s.tlsAddrs) }

// Truncated returns how many replies had TC so far, by transport: "udp", "tcp", "tls". Over the latter two that is what
// exceeds 65,535 octets.
func (s *Server) Truncated() map[string]uint64 {
	counts := map[string]uint64{}
	for over := range s.truncated {
		counts[proto(over).String()] = s.truncated[over].Load()
	}
	return counts
}

// Serve answers until the context ends; then it reads no more, finishes the replies in flight for up to 3 seconds,
// closes every socket and returns nil. It must be called once, also by who does not want to serve any more, with a
// context that has ended: nothing else closes the sockets.
func (s *Server) Serve(ctx context.Context) error {
	if s.cert != nil {
		s.work.Go(func() { s.cert.follow(s.stopping) })
	}
	for _, e := range s.sockets {
		s.work.Go(func() { s.serveStreams(e.tcp, e.stream) })
		for _, socket := range e.udp {
			s.work.Go(func() { s.serveUDP(socket) })
		}
	}
	<-ctx.Done()
	s.stop()
	finished := make(chan struct{})
	go func() {
		s.work.Wait()
		close(finished)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
	s.close()
	<-finished
	return nil
}

// stop ends reading, not writing.
func (s *Server) stop() {
	close(s.stopping) // before the deadlines: see streamConn.readUntil
	for _, e := range s.sockets {
		e.tcp.Close()
		for _, socket := range e.udp {
			socket.SetReadDeadline(past)
		}
	}
	s.streams.each(func(c *streamConn) { c.SetReadDeadline(past) })
}

// past is a deadline that ends every read at once.
var past = time.Unix(1, 0)

// close ends everything. A socket that is closed already does no harm.
func (s *Server) close() {
	for _, e := range s.sockets {
		e.close()
	}
	s.streams.each(func(c *streamConn) { c.raw.Close() })
}

func (e endpoint) close() {
	if e.tcp != nil {
		e.tcp.Close()
	}
	for _, socket := range e.udp {
		socket.Close()
	}
}

// pause waits the longer the more failures came in a row, so that a socket that only fails does not take a core. It
// returns false when the server ends.
func (s *Server) pause(failures int) bool {
	timer := time.NewTimer(time.Duration(min(failures-1, 1000)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-s.stopping:
		return false
	case <-timer.C:
		return true
	}
}
