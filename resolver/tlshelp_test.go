package resolver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	cryptotls "crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pemPair is a self-signed certificate and its key.
type pemPair struct{ cert, key []byte }

func newPair(t *testing.T, name string) pemPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pemPair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

// trusting returns how a client speaks to a server with this certificate and no other.
func (p pemPair) trusting(name string) *cryptotls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.cert)
	return &cryptotls.Config{RootCAs: roots, ServerName: name}
}

// writeFile writes beside the file and renames, as editors and cert-manager's agents do.
func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (p pemPair) files(t *testing.T) TLSFiles {
	t.Helper()
	dir := t.TempDir()
	files := TLSFiles{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	writeFile(t, files.CertFile, p.cert)
	writeFile(t, files.KeyFile, p.key)
	return files
}

func serveTLS(t *testing.T, zones Viewer, files TLSFiles, log *slog.Logger) *serving {
	t.Helper()
	local := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	return serveOptions(t, zones, Options{Listen: local, ListenTLS: local, TLS: files, Log: log})
}

func (s *serving) dialTLS(t *testing.T, config *cryptotls.Config) *cryptotls.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", s.TLSAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn := cryptotls.Client(raw, config)
	conn.SetDeadline(time.Now().Add(patience))
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}
