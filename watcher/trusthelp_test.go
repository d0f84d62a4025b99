package watcher

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// identity is a certificate and its key.
type identity struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var serials atomic.Int64

// issue makes a certificate for 127.0.0.1 and localhost as the changes want it: self-signed, or by an authority.
func issue(t testing.TB, by *identity, changes ...func(*x509.Certificate)) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issueFor(t, key, by, changes...)
}

func issueFor(t testing.TB, key crypto.Signer, by *identity, changes ...func(*x509.Certificate)) *identity {
	t.Helper()
	serial := serials.Add(1)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%d.api.test", serial)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, change := range changes {
		change(template)
	}
	if by == nil {
		by = &identity{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &identity{cert: cert, key: key}
}

// authority makes a certificate that of an authority.
func authority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage |= x509.KeyUsageCertSign
}

func (i *identity) certPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
}

func (i *identity) keyPEM(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// request is what a request was like when it came to a tlsAPI.
type request struct {
	authorization, agent, proto string
	client                      int64 // serial number of the client's certificate; 0: none
	resumed                     bool
}

// tlsAPI is no API but a TLS server that records who asks it for what.
type tlsAPI struct {
	*httptest.Server
	answers atomic.Pointer[http.HandlerFunc] // nil: an empty object
	config  atomic.Pointer[tls.Config]
	opened  atomic.Int64 // connections

	mu       sync.Mutex
	requests []request
}

func startAPI(t testing.TB, as *identity) *tlsAPI { return startAPIAt(t, as, "127.0.0.1:0", true) }

func startAPIAt(t testing.TB, as *identity, addr string, http2 bool) *tlsAPI {
	t.Helper()
	a := &tlsAPI{}
	a.become(as, http2)
	a.Server = httptest.NewUnstartedServer(a)
	if addr != "127.0.0.1:0" {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		a.Listener.Close()
		a.Listener = listener
	}
	a.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.config.Load(), nil }}
	a.EnableHTTP2 = http2
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			a.opened.Add(1)
		}
	}
	a.StartTLS()
	t.Cleanup(a.end)
	return a
}

func (a *tlsAPI) end() {
	a.CloseClientConnections()
	a.Close()
}

// become lets new connections have another certificate.
func (a *tlsAPI) become(as *identity, http2 bool) {
	protos := []string{"http/1.1"}
	if http2 {
		protos = []string{"h2", "http/1.1"}
	}
	a.config.Store(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{as.cert.Raw}, PrivateKey: as.key}},
		NextProtos:   protos, ClientAuth: tls.RequestClientCert,
	})
}

func (a *tlsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := request{authorization: r.Header.Get("Authorization"), agent: r.UserAgent(), proto: r.Proto, resumed: r.TLS.DidResume}
	if len(r.TLS.PeerCertificates) > 0 {
		s.client = r.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	a.mu.Lock()
	a.requests = append(a.requests, s)
	a.mu.Unlock()
	if answer := a.answers.Load(); answer != nil {
		(*answer)(w, r)
		return
	}
	fmt.Fprint(w, "{}")
}

func (a *tlsAPI) answer(with http.HandlerFunc) { a.answers.Store(&with) }

// take returns what came since it was last called.
func (a *tlsAPI) take() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.requests
	a.requests = nil
	return all
}

func (a *tlsAPI) mustHaveSeenNothing(t testing.TB) {
	t.Helper()
	if got := a.take(); len(got) > 0 {
		t.Errorf("a server that is not to be trusted was sent %+v", got)
	}
}

// secret begins every token of the tests: it must be in no error and no line of the log.
const secret = "eyJhbGciOi"

// account is a folder of files by which a client and an API know each other.
type account struct {
	dir string
	log *lockedBuffer
}

func newAccount(t testing.TB, ca string) *account {
	t.Helper()
	a := &account{dir: t.TempDir(), log: newLog()}
	a.put(t, "token", secret+"-1")
	if ca != "" {
		a.put(t, "ca.crt", ca)
	}
	t.Cleanup(func() { mustHoldNoToken(t, a.log.String()) })
	return a
}

func (a *account) path(name string) string { return filepath.Join(a.dir, name) }

// put replaces a file as Kubernetes does: whole.
func (a *account) put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(a.path("new"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.path("new"), a.path(name)); err != nil {
		t.Fatal(err)
	}
}

func (a *account) api(url string) API {
	return API{
		URL: url, ServiceAccountPath: a.dir, UserAgent: "peerdns/test",
		Log: slog.New(slog.NewTextHandler(a.log, nil)),
	}
}

// newClient makes a client whose connections end with the test.
func newClient(t testing.TB, api API, changes ...func(*limits)) *Client {
	t.Helper()
	client, _, err := api.Client()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&client.transport.limits)
	}
	t.Cleanup(func() {
		client.transport.mu.Lock()
		defer client.transport.mu.Unlock()
		if client.transport.now != nil {
			client.transport.now.end()
		}
	})
	return client
}

// get sends a request as the watcher would, and returns its error.
func get(t testing.TB, client *Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := client.CoreV1().RESTClient().Get().AbsPath("/test").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		mustHoldNoToken(t, err.Error())
	}
	return err
}

// mustGet is get, successful and seen by the API.
func mustGet(t testing.TB, client *Client, api *tlsAPI) request {
	t.Helper()
	if err := get(t, client); err != nil {
		t.Fatal(err)
	}
	all := api.take()
	if len(all) != 1 {
		t.Fatalf("the API saw %+v, want one request", all)
	}
	return all[0]
}

func mustFail(t testing.TB, client *Client, want string) {
	t.Helper()
	if err := get(t, client); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

func mustHoldNoToken(t testing.TB, text string) {
	t.Helper()
	if strings.Contains(text, secret) {
		t.Errorf("there is a token in: %s", text)
	}
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
