package watcher

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"peerdns/zone"
)

// scripted is a source whose batches the test sends.
type scripted struct{ batches chan Batch }

func (s scripted) List(context.Context) ([]zone.Change, error) { return nil, nil }
func (s scripted) String() string                              { return "script" }

func (s scripted) Run(ctx context.Context, out Sink) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-s.batches:
			if !out(b) {
				return
			}
		}
	}
}

func sliceSays(name string, addrs ...string) zone.Change {
	return zone.Change{Object: slicePrefix + "shop/" + name, Peers: []zone.Peer{peerOf(addrs...)}}
}

func peerOf(addrs ...string) zone.Peer {
	p := zone.Peer{Namespace: "shop", Service: "web"}
	for _, addr := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddr(addr))
	}
	return p
}

// script runs a watcher over n scripted sources inside a bubble of synthetic time.
func script(t *testing.T, n int, test func(store *zone.Store, say func(source int, complete bool, changes ...zone.Change))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		sources, batches := make([]Source, n), make([]chan Batch, n)
		for i := range sources {
			batches[i] = make(chan Batch)
			sources[i] = scripted{batches[i]}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { New(sources, store, slog.New(slog.DiscardHandler)).Run(ctx) })
		test(store, func(source int, complete bool, changes ...zone.Change) {
			batches[source] <- Batch{Changes: changes, Complete: complete}
			synctest.Wait()
		})
		cancel()
		running.Wait()
	})
}

func TestNothingIsPublishedBeforeEverySourceIsComplete(t *testing.T) {
	script(t, 2, func(store *zone.Store, say func(int, bool, ...zone.Change)) {
		say(0, true, sliceSays("a", "192.0.2.1"))
		say(1, false, sliceSays("b", "192.0.2.2"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := addresses(t, store.View()); got != "not synced" {
			t.Errorf("an hour before the last list is complete: got %q, want not synced", got)
		}
		say(1, true)
		if got := addresses(t, store.View()); got != "192.0.2.1 192.0.2.2" {
			t.Errorf("with all lists complete: got %q", got)
		}
	})
}

func TestAnEndpointThatMovesBetweenSlicesStays(t *testing.T) {
	script(t, 1, func(store *zone.Store, say func(int, bool, ...zone.Change)) {
		say(0, true, sliceSays("a", "192.0.2.1", "192.0.2.2"), sliceSays("b", "192.0.2.3"))
		for name, change := range map[string]zone.Change{
			"dropped by an update":    sliceSays("a", "192.0.2.1"),
			"dropped with its object": {Object: slicePrefix + "shop/a"},
		} {
			say(0, false, change)
			time.Sleep(moveGrace - time.Millisecond)
			synctest.Wait()
			if got := addresses(t, store.View()); got != "192.0.2.1 192.0.2.2 192.0.2.3" {
				t.Errorf("%s, within the grace time: got %q, want all three", name, got)
			}
			say(0, false, sliceSays("a", "192.0.2.1", "192.0.2.2"))
		}
		say(0, false, sliceSays("a", "192.0.2.1"))
		say(0, false, sliceSays("b", "192.0.2.2", "192.0.2.3"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := addresses(t, store.View()); got != "192.0.2.1 192.0.2.2 192.0.2.3" {
			t.Errorf("after the move: got %q, want all three", got)
		}
		say(0, false, sliceSays("b", "192.0.2.3"))
		time.Sleep(moveGrace)
		synctest.Wait()
		if got := addresses(t, store.View()); got != "192.0.2.1 192.0.2.3" {
			t.Errorf("an address that no slice claims, after the grace time: got %q", got)
		}
		if _, ok := store.View().Object(slicePrefix + "shop/a"); !ok {
			t.Error("slice a is not there any more")
		}
	})
}

func TestGraceIsNotExtended(t *testing.T) {
	script(t, 1, func(store *zone.Store, say func(int, bool, ...zone.Change)) {
		say(0, true, sliceSays("a", "192.0.2.1", "192.0.2.2"))
		for i := range 8 {
			// The slice goes on changing faster than the grace time.
			say(0, false, sliceSays("a", "192.0.2.1", []string{"192.0.2.3", "192.0.2.4"}[i%2]))
			time.Sleep(moveGrace / 4)
			synctest.Wait()
		}
		if got := addresses(t, store.View()); strings.Contains(got, "192.0.2.2") {
			t.Errorf("long after it was dropped: got %q, want no 192.0.2.2", got)
		}
	})
}

func TestWhatIsExcludedGoesAtOnce(t *testing.T) {
	script(t, 1, func(store *zone.Store, say func(int, bool, ...zone.Change)) {
		say(0, true, sliceSays("a", "192.0.2.1", "192.0.2.2"))
		leaving := sliceSays("a", "192.0.2.1")
		leaving.Excluded = []zone.Exclusion{{Peer: peerOf("192.0.2.2"), Reason: zone.Terminating}}
		say(0, false, leaving)
		if got := addresses(t, store.View()); got != "192.0.2.1" {
			t.Errorf("got %q, want 192.0.2.1 alone with no time gone", got)
		}
	})
}

func TestOtherObjectsGoAtOnce(t *testing.T) {
	script(t, 1, func(store *zone.Store, say func(int, bool, ...zone.Change)) {
		say(0, true, zone.Change{Object: "pod/shop/web-0", Peers: []zone.Peer{peerOf("192.0.2.1")}})
		say(0, false, zone.Change{Object: "pod/shop/web-0"})
		if got := addresses(t, store.View()); got != "NXDOMAIN" {
			t.Errorf("got %q, want NXDOMAIN with no time gone", got)
		}
	})
}

func TestAnExclusionIsLoggedWhenItBegins(t *testing.T) {
	log := newLog()
	g := gather{zones: newStore(t), log: slog.New(slog.NewTextHandler(log, nil)), moves: newMoves()}
	excluded := zone.Change{Object: "a", Excluded: []zone.Exclusion{{Peer: peerOf("192.0.2.1"), Reason: zone.NotReady}}}
	for range 3 {
		g.pending = map[string]zone.Change{"a": excluded}
		g.publish(time.Now())
	}
	if got := strings.Count(log.text.String(), "peer excluded"); got != 1 {
		t.Errorf("got %d lines, want 1:\n%s", got, log.text.String())
	}
}

func TestFaultsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		f := newFaults(slog.New(slog.NewTextHandler(log, nil)))
		for range 150 {
			f.note(t.Context(), context.DeadlineExceeded)
			time.Sleep(time.Second)
		}
		f.note(t.Context(), nil)
		f.note(t.Context(), nil)
		for text, want := range map[string]int{"source unavailable": 1, "still unavailable": 2, "source recovered": 1} {
			if got := strings.Count(log.text.String(), text); got != want {
				t.Errorf("%q: got %d lines, want %d:\n%s", text, got, want, log.text.String())
			}
		}
	})
}
