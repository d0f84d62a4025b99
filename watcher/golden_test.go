package watcher

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each file of testdata/golden holds objects, the zone that they make, and what is left out with its reason.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			objects := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(objects, archive.Files[0].Data, 0o600); err != nil {
				t.Fatal(err)
			}
			source := newManifests(t, objects)
			store := newStore(t)
			if err := New([]Source{source}, store, slog.New(slog.DiscardHandler)).Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := []txtar.File{
				archive.Files[0],
				{Name: "excluded", Data: []byte(excludedText(store.View()))},
				{Name: "zone", Data: []byte(masterText(t, store.View()))},
			}
			if *update {
				archive.Files = got
				if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(asText(archive.Files), asText(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func asText(files []txtar.File) map[string]string {
	text := map[string]string{}
	for _, f := range files {
		text[f.Name] = string(f.Data)
	}
	return text
}

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

func newManifests(t testing.TB, paths ...string) *Manifests {
	t.Helper()
	m, err := NewManifests(paths, nil, labels.Everything(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
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

// excludedText has a line for each exclusion: namespace/pod, service, hostname, addresses and reason.
func excludedText(view *zone.View) string {
	var text strings.Builder
	for _, e := range view.Excluded() {
		fmt.Fprintf(&text, "pod %s/%s service %q hostname %q addresses %v: %s\n",
			e.Namespace, e.Pod, e.Service, e.Hostname, e.Addrs, e.Reason)
	}
	return text.String()
}
