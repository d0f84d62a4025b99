package watcher

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

func TestMain(m *testing.M) {
	// Go reads the system's roots once, so this comes first.
	dir, err := os.MkdirTemp("", "peerdns-roots-")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(file, []byte(systemRoot().certPEM()), 0o600); err != nil {
		panic(err)
	}
	if err := errors.Join(os.Setenv("SSL_CERT_FILE", file), os.Setenv("SSL_CERT_DIR", dir)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
		os.Exit(status)
	}))
}

// systemRoot is an authority that the system of the tests trusts, and nobody else should.
var systemRoot = sync.OnceValue(func() *identity { return issue(new(testing.B), nil, authority) })

func newStore(t testing.TB) *zone.Store {
	t.Helper()
	apex, err := zone.ParseName("peers.test.")
	if err != nil {
		t.Fatal(err)
	}
	store, err := zone.NewStore(zone.Config{
		Zones: []zone.Name{apex}, TTL: 5, NegativeTTL: 2, Serial: 1,
		NameServer: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// everySlice is the peer set of all EndpointSlices.
func everySlice() []PeerSet {
	return []PeerSet{{Kind: EndpointSlices, Namespaces: []string{""}, Selector: labels.Everything()}}
}

func masterText(t testing.TB, view *zone.View) string {
	t.Helper()
	var text bytes.Buffer
	for _, apex := range view.Zones() {
		if err := view.WriteMaster(&text, apex); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
