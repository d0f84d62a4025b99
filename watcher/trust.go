package watcher

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// trust says which servers are the API.
type trust struct {
	roots  *x509.CertPool             // never nil: nil would be the system's
	pinned map[[sha256.Size]byte]bool // the only certificates that a server may have; nil: any that roots vouch for
}

// config returns the TLS configuration that lets only the trusted be the other side. It has no session cache: a
// resumed session shows no certificate (RFC 8446 §2.2), so it would outlive the trust that it was made under.
func (t trust) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.roots}
	if t.pinned != nil {
		config.VerifyConnection = t.verifyPinned
	}
	return config
}

var (
	errNotPinned = errors.New("the server's certificate is none of those in the file of trusted peers")
	errKeyUsage  = errors.New("the server's certificate is not for digital signatures (RFC 5280 §4.2.1.3)")
	oidKeyUsage  = asn1.ObjectIdentifier{2, 5, 29, 15}
)

// verifyPinned comes after the usual verification (RFC 5280 §6, RFC 9525 §6), to which the pinned certificates are
// roots: dates, names, extended key usage and critical extensions are checked. What it would let pass is a certificate
// that one of them has issued.
func (t trust) verifyPinned(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	if !t.pinned[sha256.Sum256(leaf.Raw)] {
		return errNotPinned
	}
	for _, extension := range leaf.Extensions {
		if extension.Id.Equal(oidKeyUsage) && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
			return errKeyUsage
		}
	}
	return nil
}

// parseCA reads the certificates of authorities. Text around them is theirs to have, but each must be one.
func parseCA(text []byte) (trust, error) {
	certs, err := parseCertificates(text, false)
	if err != nil {
		return trust{}, err
	}
	t := trust{roots: x509.NewCertPool()}
	for _, cert := range certs {
		t.roots.AddCert(cert.Certificate)
	}
	return t, nil
}

// parsePinned reads the self-signed certificates of servers. There may be nothing else in the file, since what is there
// by mistake may be trusted by mistake, or is a secret in the wrong place.
func parsePinned(text []byte) (trust, error) {
	certs, err := parseCertificates(text, true)
	if err != nil {
		return trust{}, err
	}
	t := trust{roots: x509.NewCertPool(), pinned: map[[sha256.Size]byte]bool{}}
	for _, cert := range certs {
		if !bytes.Equal(cert.RawIssuer, cert.RawSubject) {
			return trust{}, fmt.Errorf("line %d: the certificate is issued by another: want self-signed ones", cert.line)
		}
		if err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
			return trust{}, fmt.Errorf("line %d: the certificate is not signed by itself: %w", cert.line, err)
		}
		t.roots.AddCert(cert.Certificate)
		t.pinned[sha256.Sum256(cert.Raw)] = true
	}
	return t, nil
}

// lineCert is a certificate and the line at which it begins.
type lineCert struct {
	*x509.Certificate
	line int
}

// parseCertificates reads PEM (RFC 7468) line by line, since pem.Decode steps over what it cannot read: a broken block,
// or the first half of one. Strictly, nothing else may be there but blank lines and comments.
func parseCertificates(text []byte, strict bool) ([]lineCert, error) {
	var certs []lineCert
	var block []byte
	begin := 0 // the line at which the block begins; 0: in no block
	number := 0
	for line := range bytes.Lines(text) {
		number++
		trimmed := strings.TrimSpace(string(line))
		isBegin := strings.HasPrefix(trimmed, "-----BEGIN")
		switch {
		case isBegin && begin != 0:
			return nil, fmt.Errorf("line %d: the PEM block has no end", begin)
		case isBegin:
			begin, block = number, nil
		case begin == 0 && strict && trimmed != "" && trimmed[0] != '#':
			return nil, fmt.Errorf("line %d: not PEM: want CERTIFICATE blocks, blank lines and comments with #", number)
		}
		if begin == 0 {
			continue
		}
		block = append(append(block, trimmed...), '\n')
		if !strings.HasPrefix(trimmed, "-----END") {
			continue
		}
		cert, err := parseBlock(block, strict)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", begin, err)
		}
		if cert != nil {
			certs = append(certs, lineCert{cert, begin})
		}
		begin = 0
	}
	switch {
	case begin != 0:
		return nil, fmt.Errorf("line %d: the PEM block has no end", begin)
	case len(certs) == 0:
		return nil, errors.New("no certificate in PEM form")
	}
	return certs, nil
}

// parseBlock returns the certificate of a PEM block; nil if it is something else, which strictly is an error.
func parseBlock(text []byte, strict bool) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil || len(rest) > 0:
		return nil, errors.New("the PEM block cannot be read")
	case block.Type != "CERTIFICATE" && strict:
		return nil, fmt.Errorf("a %s: want CERTIFICATE blocks only", block.Type)
	case block.Type != "CERTIFICATE":
		return nil, nil
	case len(block.Headers) > 0:
		return nil, errors.New("the PEM block has headers: want a plain certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
