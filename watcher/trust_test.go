package watcher

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

func notYet(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
}

func elsewhere(c *x509.Certificate) {
	c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(192, 0, 2, 1)}, []string{"other.test"}
}

func nameless(c *x509.Certificate) {
	c.IPAddresses, c.DNSNames, c.Subject.CommonName = nil, nil, "127.0.0.1"
}
func nameOnly(c *x509.Certificate) { c.IPAddresses = nil }
func forClients(c *x509.Certificate) {
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}
func noUsages(c *x509.Certificate)        { c.KeyUsage, c.ExtKeyUsage = 0, nil }
func keyEncipherment(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }

func strange(c *x509.Certificate) {
	c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1}, Critical: true, Value: []byte{5, 0}}}
}

// Each server is one that says it is the API. Of those that are not to be trusted, none sees a request.
func TestWhoIsTrusted(t *testing.T) {
	ca, systemRoot := issue(t, nil, authority), systemRoot()
	pinned := issue(t, nil)
	pinnedAuthority := issue(t, nil, authority)
	sameSubject := func(c *x509.Certificate) { c.Subject = pinned.cert.Subject }
	const unknown, notListed = "signed by unknown authority", "none of those in the file of trusted peers"
	for _, test := range []struct {
		name   string
		server *identity
		peers  []*identity // none: the CA decides
		host   string      // "": 127.0.0.1
		want   string      // of the error; "" for trusted
	}{
		{"signed by the CA", issue(t, ca), nil, "", ""},
		{"signed by the CA, by name", issue(t, ca, nameOnly), nil, "localhost", ""},
		{"signed by a root of the system", issue(t, systemRoot), nil, "", unknown},
		{"self-signed", issue(t, nil), nil, "", unknown},
		{"signed by the CA, expired", issue(t, ca, expired), nil, "", "expired or is not yet valid"},
		{"signed by the CA, not yet valid", issue(t, ca, notYet), nil, "", "expired or is not yet valid"},
		{"signed by the CA for another host", issue(t, ca, elsewhere), nil, "", "valid for 192.0.2.1, not 127.0.0.1"},
		{"signed by the CA for clients", issue(t, ca, forClients), nil, "", "incompatible key usage"},
		{"signed by the CA with a strange critical extension", issue(t, ca, strange), nil, "", "unhandled critical extension"},

		{"listed", pinned, []*identity{pinned}, "", ""},
		{"listed, by name", pinned, []*identity{pinned}, "localhost", ""},
		{"listed, an authority itself", pinnedAuthority, []*identity{pinnedAuthority}, "", ""},
		{"listed beside an expired one", pinned, []*identity{issue(t, nil, expired), pinned}, "", ""},
		{"listed beside others", pinned, []*identity{issue(t, nil), issue(t, nil, elsewhere), pinned}, "", ""},
		listedAlone(t, "without usages", "", noUsages),
		listedAlone(t, "expired", "expired or is not yet valid", expired),
		listedAlone(t, "not yet valid", "expired or is not yet valid", notYet),
		listedAlone(t, "for another host", "valid for 192.0.2.1, not 127.0.0.1", elsewhere),
		listedAlone(t, "for a name, not this address", "doesn't contain any IP SANs", nameOnly),
		listedAlone(t, "with the host as common name only", "relies on legacy Common Name", nameless),
		listedAlone(t, "for clients", "incompatible key usage", forClients),
		listedAlone(t, "for key encipherment", "not for digital signatures", keyEncipherment),
		listedAlone(t, "with a strange critical extension", "unhandled critical extension", strange),
		{"not listed", issue(t, nil), []*identity{pinned}, "", unknown},
		{"not listed, with the key and subject of one", issueFor(t, pinned.key, nil, sameSubject), []*identity{pinned}, "", unknown},
		{
			"not listed, with the key of one that is an authority",
			issueFor(t, pinnedAuthority.key, pinnedAuthority),
			[]*identity{pinnedAuthority},
			"", notListed,
		},
		{"not listed, signed by one", issue(t, pinnedAuthority), []*identity{pinnedAuthority}, "", notListed},
		{"not listed, signed by the CA", issue(t, ca), []*identity{pinned}, "", unknown},
		{"not listed, signed by a root of the system", issue(t, systemRoot), []*identity{pinned}, "", unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := startAPI(t, test.server)
			account := newAccount(t, ca.certPEM())
			url := server.URL
			if test.host != "" {
				url = strings.Replace(url, "127.0.0.1", test.host, 1)
			}
			api := account.api(url)
			if len(test.peers) > 0 {
				account.put(t, "peers.pem", certsPEM(test.peers...))
				api.TrustedPeerCertFile = account.path("peers.pem")
			}
			client := newClient(t, api)
			if test.want != "" {
				mustFail(t, client, test.want)
				server.mustHaveSeenNothing(t)
				return
			}
			if got, want := mustGet(t, client, server), (request{authorization: "Bearer " + secret + "-1", agent: "peerdns/test", proto: "HTTP/2.0"}); got != want {
				t.Errorf("the API saw %+v, want %+v", got, want)
			}
		})
	}
}

type trustCase = struct {
	name   string
	server *identity
	peers  []*identity
	host   string
	want   string
}

// listedAlone is a case of TestWhoIsTrusted: what is wrong with the one certificate that is listed counts all the same.
func listedAlone(t testing.TB, name, want string, change func(*x509.Certificate)) trustCase {
	server := issue(t, nil, change)
	return trustCase{"listed, " + name, server, []*identity{server}, "", want}
}

func certsPEM(all ...*identity) string {
	var text strings.Builder
	for _, i := range all {
		text.WriteString(i.certPEM())
	}
	return text.String()
}

func TestTheRootOfTheSystemIsOne(t *testing.T) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issue(t, systemRoot()).cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost"}); err != nil {
		t.Errorf("%v: then its cases show nothing", err)
	}
}

func TestFilesOfTrustedPeers(t *testing.T) {
	ca := issue(t, nil, authority)
	good, other := issue(t, nil), issue(t, nil)
	forged := *good
	forged.cert = &x509.Certificate{Raw: append([]byte(nil), good.cert.Raw...)}
	forged.cert.Raw[len(forged.cert.Raw)-1] ^= 1
	lines := strings.SplitAfter(good.certPEM(), "\n")
	half := strings.Join(lines[:3], "")
	after := func(n int, what string) string { return fmt.Sprintf("line %d: %s", len(lines)-1+n, what) } // its lines
	unreadable := strings.Replace(good.certPEM(), lines[1], "!"+lines[1][1:], 1)
	for _, test := range []struct {
		name, text string
		want       string // of the error; "" for none
		ofCA       string // the same for the same file as ca.crt
	}{
		{"one", good.certPEM(), "", ""},
		{"several with comments", "# old\n" + good.certPEM() + "\n \t\n# new\n" + other.certPEM(), "", ""},
		{"lines with CR LF", strings.ReplaceAll(good.certPEM(), "\n", "\r\n"), "", ""},
		{"no newline at the end", strings.TrimSpace(good.certPEM()), "", ""},
		{"nothing", "", "no certificate in PEM form", "no certificate in PEM form"},
		{"comments only", "# none yet\n", "no certificate in PEM form", "no certificate in PEM form"},
		{"a private key", good.certPEM() + good.keyPEM(t), after(1, "a PRIVATE KEY: want CERTIFICATE blocks only"), ""},
		{"text", "subject=api.test\n" + good.certPEM(), "line 1: not PEM", ""},
		{"text after", good.certPEM() + "\ngarbage", after(2, "not PEM"), ""},
		{"DER", string(good.cert.Raw), "line 1: not PEM", "no certificate in PEM form"},
		{"half a block", half, "line 1: the PEM block has no end", "line 1: the PEM block has no end"},
		{"half a block before a whole one", half + good.certPEM(), "line 1: the PEM block has no end", "line 1: the PEM block has no end"},
		{"half a block after a whole one", good.certPEM() + half, after(1, "the PEM block has no end"), after(1, "the PEM block has no end")},
		{"a block that is no base64", unreadable, "line 1: the PEM block cannot be read", "line 1: the PEM block cannot be read"},
		{
			"a block that is no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			"line 1: x509: ", "line 1: x509: ",
		},
		{
			"a block with headers", strings.Replace(good.certPEM(), "\n", "\nName: api\n\n", 1),
			"line 1: the PEM block has headers", "line 1: the PEM block has headers",
		},
		{"one that is issued by another", good.certPEM() + issue(t, ca).certPEM(), after(1, "the certificate is issued by another"), ""},
		{"one whose signature is not its own", forged.certPEM(), "line 1: the certificate is not signed by itself", ""},
	} {
		for _, kind := range []struct {
			name  string
			parse func([]byte) (trust, error)
			want  string
		}{{"peers", parsePinned, test.want}, {"CA", parseCA, test.ofCA}} {
			_, err := kind.parse([]byte(test.text))
			if (err == nil) != (kind.want == "") || err != nil && !strings.HasPrefix(err.Error(), kind.want) {
				t.Errorf("%s as %s: got error %v, want %q", test.name, kind.name, err, kind.want)
			}
		}
	}
}
