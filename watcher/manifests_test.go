package watcher

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

// timeLimit ends a test that waits in vain.
const timeLimit = 20 * time.Second

func slice(name string, addrs ...string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
		"metadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: web}}\n"+
		"endpoints: [{addresses: [%s]}]\n", name, strings.Join(addrs, ", "))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // has a value after a write
}

func newLog() *lockedBuffer { return &lockedBuffer{more: make(chan struct{}, 1)} }

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *lockedBuffer) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(timeLimit)
	for {
		b.mu.Lock()
		found := strings.Contains(b.text.String(), text)
		b.mu.Unlock()
		if found {
			return
		}
		select {
		case <-b.more:
		case <-deadline:
			t.Fatalf("log has no %q:\n%s", text, b.text.String())
		}
	}
}

// follow runs a watcher over manifests until the test ends.
func follow(t *testing.T, log io.Writer, paths ...string) *zone.Store {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	source, err := NewManifests(paths, everySlice(), logger)
	must(t, err)
	source.interval = time.Hour // events have to do
	return run(t, source, logger)
}

// run runs a watcher over a source until the test ends.
func run(t *testing.T, source Source, logger *slog.Logger) *zone.Store {
	t.Helper()
	store := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { New([]Source{source}, store, logger).Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return store
}

// addresses returns the A records of web.shop in a view.
func addresses(t testing.TB, view *zone.View) string {
	t.Helper()
	name, err := zone.ParseName("web.shop.svc.peers.test.")
	if err != nil {
		t.Fatal(err)
	}
	result := view.Lookup(name, dns.TypeA)
	if result.Outcome != zone.Success {
		return result.Outcome.String()
	}
	var addrs []string
	for _, rr := range result.RRset.RRs(name) {
		addrs = append(addrs, rr.(*dns.A).A.String())
	}
	return strings.Join(addrs, " ")
}

// awaitAddresses waits until the answer is as wanted, and fails on one that is never allowed on the way.
func awaitAddresses(t *testing.T, store *zone.Store, want string, never ...string) {
	t.Helper()
	deadline := time.After(timeLimit)
	for {
		view, changed := store.Watch()
		got := addresses(t, view)
		if got == want {
			return
		}
		for _, bad := range never {
			if got == bad {
				t.Fatalf("answer on the way to %q: %s", want, got)
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("answer: got %q, want %q", got, want)
		}
	}
}

func TestManifestsFollowFilesAndFolders(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, slice("a", "192.0.2.1"))
	store := follow(t, log, dir)
	awaitAddresses(t, store, "192.0.2.1")

	write(t, file, slice("a", "192.0.2.1", "192.0.2.2"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2")

	write(t, filepath.Join(dir, "b.json"), `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",
		"metadata":{"name":"b","namespace":"shop","labels":{"kubernetes.io/service-name":"web"}},
		"endpoints":[{"addresses":["192.0.2.3"]}]}`)
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2 192.0.2.3")

	for _, ignored := range []string{"c.txt", ".hidden.yaml"} {
		write(t, filepath.Join(dir, ignored), slice("c", "192.0.2.4"))
	}
	must(t, os.Remove(file))
	awaitAddresses(t, store, "192.0.2.3")
	must(t, os.Remove(filepath.Join(dir, "b.json")))
	awaitAddresses(t, store, "NXDOMAIN")
}

func TestManifestsFollowAnEditorsRename(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, slice("a", "192.0.2.1"))
	store := follow(t, newLog(), file)
	awaitAddresses(t, store, "192.0.2.1")
	for i := 2; i < 6; i++ {
		// As vim saves: the file moves aside, a new one takes its name, the old one goes.
		must(t, os.Rename(file, file+"~"))
		write(t, file, slice("a", fmt.Sprintf("192.0.2.%d", i)))
		must(t, os.Remove(file+"~"))
		awaitAddresses(t, store, fmt.Sprintf("192.0.2.%d", i), "NXDOMAIN")
		// And as others do: the new file is moved over the old one.
		write(t, file+".new", slice("a", fmt.Sprintf("192.0.2.10%d", i)))
		must(t, os.Rename(file+".new", file))
		awaitAddresses(t, store, fmt.Sprintf("192.0.2.10%d", i), "NXDOMAIN")
	}
}

// Kubernetes updates a mounted ConfigMap by swapping the link ..data, which all files in the folder go through.
func TestManifestsFollowAConfigMap(t *testing.T) {
	for _, of := range []string{"folder", "file"} {
		t.Run(of, func(t *testing.T) {
			dir := t.TempDir()
			put := func(version, text string) {
				must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
				write(t, filepath.Join(dir, version, "a.yaml"), text)
				must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
				must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
			}
			put("..2026_01", slice("a", "192.0.2.1"))
			must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
			path := dir
			if of == "file" {
				path = filepath.Join(dir, "a.yaml")
			}
			store := follow(t, newLog(), path)
			awaitAddresses(t, store, "192.0.2.1")
			put("..2026_02", slice("a", "192.0.2.2"))
			must(t, os.RemoveAll(filepath.Join(dir, "..2026_01")))
			awaitAddresses(t, store, "192.0.2.2", "NXDOMAIN")
		})
	}
}

func TestABrokenManifestKeepsItsLastGoodObjects(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, slice("a", "192.0.2.1"))
	write(t, b, slice("b", "192.0.2.2"))
	store := follow(t, log, dir)
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2")

	write(t, a, slice("a", "192.0.2.9")+"---\nkind: [\n")
	log.await(t, a+":")
	write(t, b, slice("b", "192.0.2.3"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.3", "192.0.2.3")

	must(t, os.Remove(b))
	must(t, os.Mkdir(b, 0o700)) // no file any more, and nothing that could be read
	awaitAddresses(t, store, "192.0.2.1")

	write(t, a, slice("a", "192.0.2.4"))
	awaitAddresses(t, store, "192.0.2.4")
	must(t, os.RemoveAll(dir))
	log.await(t, "source unavailable, the last known peers stay")
	if got := addresses(t, store.View()); got != "192.0.2.4" {
		t.Errorf("after the folder was gone: got %q, want the last known peers", got)
	}
	must(t, os.Mkdir(dir, 0o700))
	write(t, a, slice("a", "192.0.2.5"))
	awaitAddresses(t, store, "192.0.2.5", "NXDOMAIN")
}

func TestAPathThatCannotBeListedKeepsItsObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), slice("a", "192.0.2.1"))
	single := filepath.Join(t.TempDir(), "b.yaml")
	write(t, single, slice("b", "192.0.2.2"))
	source, err := NewManifests([]string{dir, single}, everySlice(), slog.New(slog.DiscardHandler))
	must(t, err)
	_, err = source.List(t.Context())
	must(t, err)
	must(t, os.RemoveAll(dir))
	must(t, os.Remove(single))
	changes, err := source.List(t.Context())
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), single) {
		t.Errorf("got %v, want an error that names %s and %s", err, dir, single)
	}
	peers := 0
	for _, c := range changes {
		peers += len(c.Peers)
	}
	if peers != 2 {
		t.Errorf("got %d peers of what can no longer be read, want 2", peers)
	}
}

func TestManifestsAreNotCompleteWhileAFileIsBroken(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	write(t, filepath.Join(dir, "a.yaml"), slice("a", "192.0.2.1"))
	write(t, filepath.Join(dir, "b.yaml"), "kind: [\n")
	store := follow(t, log, dir)
	log.await(t, "b.yaml:")
	if got := addresses(t, store.View()); got != "not synced" {
		t.Errorf("with one file broken from the start: got %q, want not synced", got)
	}
	write(t, filepath.Join(dir, "b.yaml"), slice("b", "192.0.2.2"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2", "NXDOMAIN", "192.0.2.1")
}

// After the first batch a file that has never been good has no objects, and the others go on.
func TestANewBrokenManifestHoldsUpNoOther(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, slice("a", "192.0.2.1"))
	store := follow(t, log, dir)
	awaitAddresses(t, store, "192.0.2.1")
	write(t, b, "kind: [\n")
	log.await(t, "b.yaml:")
	write(t, a, slice("a", "192.0.2.2"))
	awaitAddresses(t, store, "192.0.2.2", "NXDOMAIN")
	write(t, b, slice("b", "192.0.2.3"))
	awaitAddresses(t, store, "192.0.2.2 192.0.2.3", "NXDOMAIN")
}

// A path that goes away before it was read once is no empty source.
func TestManifestsAreNotCompleteWithoutTheirPath(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "a"), newLog()
	must(t, os.Mkdir(dir, 0o700))
	logger := slog.New(slog.NewTextHandler(log, nil))
	source, err := NewManifests([]string{dir}, everySlice(), logger)
	must(t, err)
	must(t, os.Remove(dir))
	store := run(t, source, logger)
	log.await(t, "source unavailable")
	must(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), slice("a", "192.0.2.1"))
	awaitAddresses(t, store, "192.0.2.1", "NXDOMAIN")
}

func TestAFileThatBecomesAnEmptyFolderKeepsItsObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, slice("a", "192.0.2.1"))
	source, err := NewManifests([]string{path}, everySlice(), slog.New(slog.DiscardHandler))
	must(t, err)
	_, err = source.List(t.Context())
	must(t, err)
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	changes, err := source.List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "was a file and is now a folder") || len(changes) != 1 || len(changes[0].Peers) != 1 {
		t.Errorf("got %v, %v; want a fault and the peer that was", changes, err)
	}
	write(t, filepath.Join(path, "b.yaml"), slice("b", "192.0.2.2"))
	changes, err = source.List(t.Context())
	must(t, err)
	if len(changes) != 2 {
		t.Errorf("got %v, want b to come and a to go", changes)
	}
}

func TestManifestsAreSelected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	labelled := strings.Replace(slice("b", "192.0.2.2"), "labels: {", "labels: {app: web, ", 1)
	write(t, file, slice("a", "192.0.2.1")+"---\n"+labelled+"---\n"+strings.ReplaceAll(labelled, "shop", "other"))
	selector, err := labels.Parse("app=web")
	must(t, err)
	source, err := NewManifests([]string{file}, []PeerSet{{Kind: EndpointSlices, Namespaces: []string{"shop"}, Selector: selector}}, slog.New(slog.DiscardHandler))
	must(t, err)
	changes, err := source.List(t.Context())
	must(t, err)
	if len(changes) != 1 || changes[0].Object != "endpointslice/shop/b" {
		t.Errorf("got %v, want endpointslice/shop/b alone", changes)
	}
}

func TestNewManifestsNamesWhatIsMissing(t *testing.T) {
	_, err := NewManifests([]string{"testdata", "testdata/nowhere", "testdata/nor-here"}, everySlice(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "testdata/nowhere") || !strings.Contains(err.Error(), "testdata/nor-here") {
		t.Errorf("got %v, want both missing paths named", err)
	}
}
