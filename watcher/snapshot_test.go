package watcher

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

// stage is a watcher with a snapshot, over scripted sources, inside a bubble of synthetic time.
type stage struct {
	*testing.T
	path     string
	log      *lockedBuffer
	create   createFile // nil: the file system's
	store    *zone.Store
	watcher  *Watcher
	snapshot *Snapshot
	batches  []chan Batch
	end      func() // of Run
}

func onStage(t *testing.T, test func(s *stage)) {
	t.Helper()
	dir := t.TempDir() // its clean-up must not run in the bubble
	synctest.Test(t, func(t *testing.T) {
		test(&stage{T: t, path: filepath.Join(dir, "peers"), log: newLog()})
	})
}

// start begins a new life over the file that is there, with n sources that say nothing yet.
func (s *stage) start(n int) {
	s.Helper()
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.snapshot = OpenSnapshot(SnapshotOptions{Path: s.path, MaxAge: 24 * time.Hour, Config: "c", Log: log})
	if s.create != nil {
		s.snapshot.create = s.create
	}
	s.store = newStore(s.T)
	sources := make([]Source, n)
	s.batches = make([]chan Batch, n)
	for i := range sources {
		s.batches[i] = make(chan Batch)
		sources[i] = scripted{s.batches[i]}
	}
	s.watcher = New(sources, s.store, log)
	s.watcher.Use(s.snapshot)
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() { s.watcher.Run(ctx) })
	s.end = func() {
		cancel()
		running.Wait()
	}
	synctest.Wait()
}

func (s *stage) say(source int, complete bool, changes ...zone.Change) {
	s.batches[source] <- Batch{Changes: changes, Complete: complete}
	synctest.Wait()
}

// wait lets time pass.
func (s *stage) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stage) served(when, want string) {
	s.Helper()
	if got := addresses(s.T, s.store.View()); got != want {
		s.Errorf("%s: %q is served, want %q", when, got, want)
	}
}

// stored checks the addresses in the file, "" for no file.
func (s *stage) stored(when, want string) {
	s.Helper()
	content, err := os.ReadFile(s.path)
	if err != nil && want == "" {
		return
	}
	must(s.T, err)
	_, changes, err := readSnapshot(content, anyHead)
	must(s.T, err)
	store := newStore(s.T)
	store.Apply(changes...)
	if got := addresses(s.T, store.View()); got != want {
		s.Errorf("%s: the file has %q, want %q", when, got, want)
	}
}

func (s *stage) stale(when string, want bool) {
	s.Helper()
	if _, got := s.watcher.Stale(); got != want {
		s.Errorf("%s: stale is %v, want %v", when, got, want)
	}
}

func (s *stage) logged(want int, text string) {
	s.Helper()
	if got := strings.Count(s.log.text.String(), text); got != want {
		s.Errorf("%q: got %d lines, want %d:\n%s", text, got, want, s.log.text.String())
	}
}

func TestASnapshotIsServedUntilTheListsReplaceIt(t *testing.T) {
	onStage(t, func(s *stage) {
		s.start(1)
		s.logged(1, `level=INFO msg="no snapshot yet`)
		s.say(0, true, sliceSays("a", "192.0.2.1", "192.0.2.2"), sliceSays("b", "192.0.2.3"))
		s.end()
		known := time.Now()

		s.wait(time.Hour)
		s.start(2)
		s.logged(1, "objects=2 age=1h0m0s")
		s.served("at the start", "192.0.2.1 192.0.2.2 192.0.2.3")
		s.stale("at the start", true)
		if at, _ := s.watcher.Stale(); !at.Equal(known) {
			s.Errorf("known: got %v, want %v", at, known)
		}
		s.wait(time.Hour)
		s.served("an hour later", "192.0.2.1 192.0.2.2 192.0.2.3")

		// One source is complete: what it says counts, and what it does not say may be the other's.
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.served("with one list", "192.0.2.1 192.0.2.3")
		s.stale("with one list", true)
		s.say(0, false, sliceSays("c", "192.0.2.4"))
		s.served("with a change", "192.0.2.1 192.0.2.3 192.0.2.4")
		s.say(1, true, sliceSays("d", "192.0.2.5"))
		s.served("with both lists", "192.0.2.1 192.0.2.4 192.0.2.5") // with no time gone
		s.stale("with both lists", false)
		s.end()
		s.stored("at the end", "192.0.2.1 192.0.2.4 192.0.2.5")
	})
}

// After the first list an endpoint may move between slices again.
func TestEndpointsOfASnapshotMayMoveOnceTheyAreListed(t *testing.T) {
	onStage(t, func(s *stage) {
		for range 2 {
			s.start(1)
			s.say(0, true, sliceSays("a", "192.0.2.1", "192.0.2.2"))
			s.say(0, false, sliceSays("a", "192.0.2.1"))
			s.served("in the grace time", "192.0.2.1 192.0.2.2")
			s.say(0, false, sliceSays("a", "192.0.2.1", "192.0.2.2"))
			s.end()
		}
	})
}

func TestNothingIsWrittenBeforeTheListsAreComplete(t *testing.T) {
	onStage(t, func(s *stage) {
		s.start(2)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.wait(48 * time.Hour)
		s.end()
		s.stored("with one list of two", "")

		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.end()
		before, err := os.ReadFile(s.path)
		must(s.T, err)
		s.wait(time.Hour)
		s.start(2) // from the snapshot
		s.say(0, true, sliceSays("b", "192.0.2.2"))
		s.wait(48 * time.Hour)
		s.end()
		if after, err := os.ReadFile(s.path); err != nil || !slices.Equal(before, after) {
			s.Errorf("the file has been written anew while it is all we have: %v", err)
		}
	})
}

// Every reason for which a snapshot is not used, in one line with the file's name.
func TestSnapshotsThatAreRefused(t *testing.T) {
	now := time.Now().UTC()
	good := snapshotHead{Config: "c", Time: now, Serials: map[string]uint32{"peers.test.": 1}}
	with := func(change func(*snapshotHead)) []byte {
		head := good
		change(&head)
		return snapshotText(t, head, sliceSays("a", "192.0.2.1"))
	}
	whole := with(func(*snapshotHead) {})
	damaged := slices.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	for name, test := range map[string]struct {
		content []byte // nil: a folder
		want    string
	}{
		"another version": {
			[]byte(strings.Replace(string(whole), "snapshot 1", "snapshot 2", 1)),
			`level=WARN msg="snapshot ignored" path=PATH err="of another version: \"2\", want 1"`,
		},
		"cut short":    {whole[:len(whole)-1], `err="damaged or cut short: the checksum does not match"`},
		"damaged":      {damaged, `err="damaged or cut short: the checksum does not match"`},
		"empty":        {[]byte{}, `err="not a snapshot of peerdns"`},
		"another file": {[]byte("kind: EndpointSlice\n"), `err="not a snapshot of peerdns"`},
		"another configuration": {
			with(func(h *snapshotHead) { h.Config = "d" }),
			`err="of another configuration: other zones, sources or peer sets"`,
		},
		"too old": {
			with(func(h *snapshotHead) { h.Time = now.Add(-25 * time.Hour) }), `err="too old: 25h0m0s, at most 24h0m0s"`,
		},
		"from the future": {
			with(func(h *snapshotHead) { h.Time = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) }),
			`err="from the future: of 3000-01-01T00:00:00Z"`,
		},
		"serials of no zone": {
			with(func(h *snapshotHead) { h.Serials = map[string]uint32{"a..b": 1} }), `err="damaged or cut short: serials: \"a..b\": not a domain name"`,
		},
		"a folder": {nil, `err="not a regular file"`},
	} {
		path := filepath.Join(t.TempDir(), "peers")
		if test.content == nil {
			must(t, os.Mkdir(path, 0o700))
		} else {
			must(t, os.WriteFile(path, test.content, 0o600))
		}
		log := newLog()
		s := OpenSnapshot(SnapshotOptions{Path: path, MaxAge: 24 * time.Hour, Config: "c", Log: slog.New(slog.NewTextHandler(log, nil))})
		text := strings.ReplaceAll(log.text.String(), path, "PATH")
		if !strings.Contains(text, test.want) || !strings.Contains(text, "path=PATH") || strings.Count(text, "\n") != 1 {
			t.Errorf("%s:\n got %swant one line with %s", name, text, test.want)
		}
		store := newStore(t)
		if s.apply(store) != nil || store.View().Synced() || len(s.Serials()) > 0 || !s.Status().Known.IsZero() {
			t.Errorf("%s: something of it is used", name)
		}
		if _, stale := s.Stale(); stale {
			t.Errorf("%s: it is served", name)
		}
	}
}

func TestAFingerprintTellsConfigurationsApart(t *testing.T) {
	base := func() PeerSet {
		return PeerSet{Kind: Pods, Namespaces: []string{"shop"}, Selector: labels.Everything(), Rules: Rules{Set: "one"}}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*PeerSet) []string{
		"base":       func(*PeerSet) []string { return nil },
		"kind":       func(s *PeerSet) []string { s.Kind = Endpoints; return nil },
		"namespaces": func(s *PeerSet) []string { s.Namespaces = []string{"shop", "bank"}; return nil },
		"selector":   func(s *PeerSet) []string { s.Selector = labels.SelectorFromSet(labels.Set{"a": "b"}); return nil },
		"rules":      func(s *PeerSet) []string { s.EndpointPodNames = true; return nil },
		"ports":      func(s *PeerSet) []string { s.Ports = []zone.Port{{Name: "epmd"}}; return nil },
		"a setting":  func(*PeerSet) []string { return []string{"a b"} },
		"two":        func(*PeerSet) []string { return []string{"a", "b"} },
	} {
		set := base()
		settings := change(&set)
		print := Fingerprint([]PeerSet{set}, settings...)
		if other, twice := seen[print]; twice {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[print] = name
		if again := Fingerprint([]PeerSet{set}, settings...); again != print {
			t.Errorf("%s: differs from itself", name)
		}
	}
}
