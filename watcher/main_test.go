package watcher

import (
	"bytes"
	"net/netip"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
