package resolver

import (
	"bytes"
	cryptotls "crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTLS(t *testing.T) {
	pair := newPair(t, "ns.test")
	s := serveTLS(t, shop(t), pair.files(t), nil)
	for name, c := range map[string]struct {
		alpn       []string
		min, max   uint16
		negotiated string
		fails      bool
	}{
		"ALPN":         {alpn: []string{"dot"}, negotiated: "dot"},
		"several":      {alpn: []string{"h2", "dot"}, negotiated: "dot"},
		"without ALPN": {},
		"others only":  {alpn: []string{"h2"}, fails: true},
		"1.2":          {max: cryptotls.VersionTLS12},
		"1.3":          {min: cryptotls.VersionTLS13},
		"1.1":          {min: cryptotls.VersionTLS10, max: cryptotls.VersionTLS11, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			config := pair.trusting("ns.test")
			config.NextProtos, config.MinVersion, config.MaxVersion = c.alpn, c.min, c.max
			if c.fails {
				conn, err := cryptotls.Dial("tcp", s.TLSAddrs()[0].String(), config)
				if err == nil {
					conn.Close()
					t.Error("no error")
				} else if !strings.HasPrefix(err.Error(), "remote error: tls: ") {
					t.Errorf("%v, and no alert", err)
				}
				return
			}
			conn := s.dialTLS(t, config)
			if got := conn.ConnectionState().NegotiatedProtocol; got != c.negotiated {
				t.Errorf("negotiated %q, want %q", got, c.negotiated)
			}
			write(t, conn, framed(t, web, web))
			for range 2 {
				if reply := readFrame(t, conn); len(reply.Answer) != 2 {
					t.Errorf("got\n%s", reply)
				}
			}
		})
	}
}

// A session is resumed while the certificate is the same, and never onto another one.
func TestTLSSessions(t *testing.T) {
	first, second := newPair(t, "ns.test"), newPair(t, "ns.test")
	files, log := first.files(t), make(textLines, 100)
	s := serveTLS(t, shop(t), files, log.logger())
	log.await(t, "certificate loaded")
	config := first.trusting("ns.test")
	config.RootCAs.AppendCertsFromPEM(second.cert)
	config.ClientSessionCache = cryptotls.NewLRUClientSessionCache(0)
	connect := func() *cryptotls.Conn {
		conn := s.dialTLS(t, config)
		write(t, conn, framed(t, web))
		readFrame(t, conn) // tickets come before it
		return conn
	}
	old := connect()
	if old.ConnectionState().DidResume {
		t.Error("the first connection resumed")
	}
	for range 3 {
		if !connect().ConnectionState().DidResume {
			t.Error("not resumed")
		}
	}
	writeFile(t, files.KeyFile, second.key)
	writeFile(t, files.CertFile, second.cert)
	log.await(t, "certificate loaded")
	state := connect().ConnectionState()
	if state.DidResume {
		t.Error("a session of the old certificate was resumed")
	}
	if block, _ := pem.Decode(second.cert); !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
		t.Error("it is not the new certificate")
	}
	if !connect().ConnectionState().DidResume {
		t.Error("a session of the new certificate was not resumed")
	}
	write(t, old, framed(t, web)) // which is not disturbed
	readFrame(t, old)
}

// Connections that begin no handshake, or never end it, keep nobody waiting, and those that speak something else are
// told so.
func TestHandshakesThatDoNotEnd(t *testing.T) {
	pair := newPair(t, "ns.test")
	s := serveTLS(t, shop(t), pair.files(t), nil)
	for i := range 100 {
		conn, err := net.Dial("tcp", s.TLSAddrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		write(t, conn, []byte{22, 3, 1, 2, 0, 1}[:i%7])
	}
	conn := s.dialTLS(t, pair.trusting("ns.test"))
	write(t, conn, framed(t, web))
	readFrame(t, conn)

	plain, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	plain.SetDeadline(time.Now().Add(patience))
	write(t, plain, framed(t, web, web, web, web))
	if _, err := io.Copy(io.Discard, plain); err != nil {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestTimeOfAHandshake(t *testing.T) {
	files := newPair(t, "ns.test").files(t)
	view := shop(t)
	for name, first := range map[string][]byte{"silent": nil, "a half record": {22, 3, 1, 2, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			cert, err := loadCertificate(files, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, view)
				s.cert = cert
				client, server := net.Pipe()
				defer client.Close()
				start := time.Now()
				var running sync.WaitGroup
				running.Go(func() { s.serveStream(server, tls) })
				write(t, client, first)
				synctest.Wait()
				if got := s.openStreams(); got != 1 {
					t.Errorf("%d connections count, want 1", got)
				}
				running.Wait()
				if got := time.Since(start); got != handshakeTimeout {
					t.Errorf("closed after %v, want %v", got, handshakeTimeout)
				}
			})
		})
	}
}

// recorder keeps what comes.
type recorder struct {
	net.Conn
	octets []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.octets = append(r.octets, p[:n]...)
	return n, err
}

// lastRecord returns the type of the last TLS record (RFC 5246 §6.2.1).
func (r *recorder) lastRecord() (content byte) {
	for octets := r.octets; len(octets) > 0; octets = octets[5+binary.BigEndian.Uint16(octets[3:]):] {
		content = octets[0]
	}
	return content
}

// The client's crypto/tls takes FIN alone for an end as well. A record of 1.3 hides what it is.
func TestTheEndOfATLSConnectionIsSaid(t *testing.T) {
	const alert = 21
	pair := newPair(t, "ns.test")
	s := serveTLS(t, shop(t), pair.files(t), nil)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", s.TLSAddrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(patience))
		return conn
	}
	raw, silent := &recorder{Conn: dial()}, dial() // the silent one is in its handshake
	config := pair.trusting("ns.test")
	config.MaxVersion = cryptotls.VersionTLS12
	conn := cryptotls.Client(raw, config)
	write(t, conn, framed(t, web))
	readFrame(t, conn)
	s.end()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	if got := raw.lastRecord(); got != alert {
		t.Errorf("the last record is of type %d, want %d", got, alert)
	}
	if n, err := io.Copy(io.Discard, silent); err != nil || n != 0 {
		t.Errorf("in the handshake: got %d octets and %v, want EOF", n, err)
	}
}

func TestListenRefusesBadTLS(t *testing.T) {
	good, other := newPair(t, "ns.test"), newPair(t, "ns.test")
	for name, c := range map[string]struct {
		pair pemPair
		want string // after the folder
	}{
		"no certificate":      {pemPair{nil, good.key}, "TLS certificate: DIR/tls.crt: no certificate in PEM form"},
		"certificate is junk": {pemPair{good.key, good.key}, "TLS certificate: DIR/tls.crt: no certificate in PEM form"},
		"half a chain":        {pemPair{append(good.cert, junkBlock...), good.key}, "TLS certificate: DIR/tls.crt: x509: malformed certificate"},
		"no key":              {pemPair{good.cert, good.cert}, "TLS key: DIR/tls.key, for the certificate DIR/tls.crt: tls: found a certificate rather than a key in the PEM for the private key"},
		"mismatch":            {pemPair{good.cert, other.key}, "TLS key: DIR/tls.key, for the certificate DIR/tls.crt: tls: private key does not match public key"},
	} {
		wantListenError(t, name, c.pair.files(t), c.want)
	}
	files := good.files(t)
	must(t, os.Remove(files.KeyFile))
	wantListenError(t, "key is missing", files, "TLS key: open DIR/tls.key: no such file or directory")
	files = good.files(t)
	must(t, os.Remove(files.CertFile))
	wantListenError(t, "certificate is missing", files, "TLS certificate: open DIR/tls.crt: no such file or directory")
	wantListenError(t, "nothing is named", TLSFiles{}, "TLS certificate: no file is named")
	wantListenError(t, "no key is named", TLSFiles{CertFile: good.files(t).CertFile}, "TLS key: no file is named")
}

var junkBlock = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("junk")})

func wantListenError(t *testing.T, name string, files TLSFiles, want string) {
	t.Helper()
	s, err := Listen(Options{ListenTLS: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, TLS: files}, shop(t))
	if err == nil {
		t.Errorf("%s: no error", name)
		s.close()
		return
	}
	got := string(bytes.ReplaceAll([]byte(err.Error()), []byte(filepath.Dir(files.CertFile)+"/"), []byte("DIR/")))
	if got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestAPortInUseForTLS(t *testing.T) {
	pair := newPair(t, "ns.test")
	s := serveTLS(t, shop(t), pair.files(t), nil)
	taken := s.TLSAddrs()[0]
	_, err := Listen(Options{ListenTLS: []netip.AddrPort{taken}, TLS: pair.files(t)}, shop(t))
	if want := "listen tls " + taken.String() + ": address already in use"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
