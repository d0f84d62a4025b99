package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate writes a certificate for peerdns.test that is its own authority, and its key.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "peerdns.test"}, DNSNames: []string{"peerdns.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
}

// DNS over TLS as kdig speaks it, strictly; and a certificate that is replaced while we run.
func TestDNSOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key, old := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "old.crt")
	writeCertificate(t, cert, key, 1)
	p := start(t, "--manifests=../deploy/examples", "--zone=cluster.local", "--listen-tls=127.0.0.1:0", "--tls-cert-file="+cert, "--tls-key-file="+key)
	port := p.awaitLog(t, `tls=\[127\.0\.0\.1:(\d+)\]`)[1]
	p.awaitLog(t, "zones synced")
	kdig := func(ca string, args ...string) (string, error) {
		args = append([]string{
			"@127.0.0.1", "-p", port, "+retry=0", "+timeout=5", "+tls", "+tls-ca=" + ca, "+tls-hostname=peerdns.test",
			"web.shop.svc.cluster.local.", "A",
		}, args...)
		out, err := exec.Command(tool(t, "kdig", "knot-dnsutils"), args...).CombinedOutput()
		return string(out), err
	}
	out, err := kdig(cert, "+padding", "+cookie", "+nsid")
	must(t, err)
	expect(t, out, `;; TLS session \(TLS1\.3\)`, "status: NOERROR", `A\s+192\.0\.2\.10$`, "PADDING: ", `Received 468 B`)

	// A broken key changes nothing; a new pair is taken, and the old certificate no longer shown.
	must(t, os.Link(cert, old))
	must(t, os.WriteFile(key+".new", []byte("no key"), 0o600))
	must(t, os.Rename(key+".new", key))
	p.awaitLog(t, `certificate not loaded, the one before stays in use.*tls\.key`)
	out, err = kdig(cert)
	must(t, err)
	expect(t, out, "status: NOERROR")
	must(t, os.Remove(cert))
	writeCertificate(t, cert, key, 2)
	deadline := time.Now().Add(timeLimit)
	for out, err = kdig(cert); err != nil || !strings.Contains(out, "NOERROR"); out, err = kdig(cert) {
		if time.Now().After(deadline) {
			t.Fatalf("the new certificate is not shown: %v\n%s", err, out)
		}
	}
	if out, err := kdig(old); err == nil && strings.Contains(out, "NOERROR") {
		t.Errorf("the old certificate is still shown:\n%s", out)
	}
}
