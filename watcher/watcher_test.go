package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"peerdns/zone"
)

// scripted is a source whose batches the test sends.
type scripted struct{ batches chan Batch }

func (s scripted) List(context.Context) ([]zone.Change, error) { return nil, nil }
func (s scripted) String() string                              { return "script" }
func (s scripted) Health() Health                              { return Health{} }

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

// A change of ports ends no exclusion and begins none.
func TestAnExclusionThatStaysIsNoNews(t *testing.T) {
	log := newLog()
	g := gather{zones: newStore(t), log: slog.New(slog.NewTextHandler(log, nil)), moves: newMoves()}
	for port := range uint16(3) {
		peer := peerOf("192.0.2.1")
		peer.Ports = []zone.Port{{Name: "http", Protocol: "tcp", Number: 80 + port}}
		g.pending = map[string]zone.Change{"a": {Object: "a", Excluded: []zone.Exclusion{{Peer: peer, Reason: zone.NotReady}}}}
		g.publish(time.Now())
	}
	if got := strings.Count(log.text.String(), "msg="); got != 1 {
		t.Errorf("got %d lines, want 1:\n%s", got, log.text.String())
	}
}

// An address that a slice has dropped goes when its time is up, however often the slice changes meanwhile.
func TestAHeldAddressIsNotHeldAgain(t *testing.T) {
	g := gather{zones: newStore(t), log: slog.New(slog.DiscardHandler), moves: newMoves()}
	now := time.Unix(1e9, 0)
	say := func(addrs ...string) {
		c := sliceSays("a", addrs...)
		g.pending = map[string]zone.Change{c.Object: c}
		g.publish(now)
	}
	say("192.0.2.1", "192.0.2.2")
	for i := range 5 {
		now = now.Add(moveGrace)
		say("192.0.2.1", fmt.Sprint("192.0.2.", 10+i))
	}
	if got := addresses(t, g.zones.View()); strings.Contains(got, "192.0.2.2 ") || !strings.Contains(got, "192.0.2.13") {
		t.Errorf("got %s: want what was dropped last, and not what was dropped first", got)
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

// A long history of finished pods beside one running: no name, and a log that can still be read.
func TestFinishedPodsAreNoStorm(t *testing.T) {
	log := newLog()
	store := newStore(t)
	changes := []zone.Change{Rules{}.pod(podOf("running", corev1.PodRunning))}
	for i := range 5000 {
		changes = append(changes, Rules{}.pod(podOf(fmt.Sprint("done-", i), corev1.PodSucceeded)))
	}
	g := gather{
		zones: store, log: slog.New(slog.NewTextHandler(log, nil)), pending: map[string]zone.Change{},
		synced: make([]atomic.Bool, 1), moves: newMoves(),
	}
	g.take(sourceBatch{Batch{Changes: changes, Complete: true}, 0})
	g.publish(time.Now())
	text := log.text.String()
	if got := strings.Count(text, "\n"); got > newsLines+1 {
		t.Errorf("got %d lines, want at most %d", got, newsLines+1)
	}
	if !strings.Contains(text, fmt.Sprintf("lines=%d", 5000-newsLines)) {
		t.Errorf("the log does not count the rest:\n%s", text)
	}
	if got := len(store.View().Excluded()); got != 5000 {
		t.Errorf("got %d exclusions, want 5000", got)
	}
	if got := strings.Count(masterText(t, store.View()), "192.0.2.1"); got != 4 {
		t.Errorf("192.0.2.1 stands in %d records, want in the service's, the peer's, the pod's and _nodes:\n%s",
			got, masterText(t, store.View()))
	}
}

func podOf(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{Subdomain: "web"},
		Status:     corev1.PodStatus{Phase: phase, PodIP: "192.0.2.1"},
	}
}

func TestAnExclusionIsLoggedWhenItEnds(t *testing.T) {
	log := newLog()
	g := gather{zones: newStore(t), log: slog.New(slog.NewTextHandler(log, nil)), moves: newMoves()}
	excluded := zone.Change{
		Object:   "a",
		Excluded: []zone.Exclusion{{Peer: peerOf("192.0.2.1"), Reason: zone.NotPinned}},
		Warnings: []string{"odd"},
	}
	for _, c := range []zone.Change{excluded, {Object: "a", Peers: excluded.Peers}, {Object: "a"}} {
		g.pending = map[string]zone.Change{"a": c}
		g.publish(time.Now())
	}
	for text, want := range map[string]int{"peer excluded": 1, "peer no longer excluded": 1, "fault=odd": 1} {
		if got := strings.Count(log.text.String(), text); got != want {
			t.Errorf("%q: got %d lines, want %d:\n%s", text, got, want, log.text.String())
		}
	}
}

// Sets with the same kind, namespace and selector share one source; each says what it makes of an object.
func TestSetsShareSources(t *testing.T) {
	everything, app := labels.Everything(), labels.SelectorFromSet(labels.Set{"app": "web"})
	sets := []PeerSet{
		{Kind: Pods, Namespaces: []string{"bank", "shop"}, Selector: everything, Rules: Rules{Set: "one", Service: "one"}},
		{Kind: Pods, Namespaces: []string{"shop"}, Selector: everything, Rules: Rules{Set: "two", Service: "two"}},
		{Kind: Pods, Namespaces: []string{"shop"}, Selector: app, Rules: Rules{Set: "three"}},
		{Kind: Endpoints, Namespaces: []string{""}, Selector: everything, Rules: Rules{Set: "four"}},
	}
	api := newFakeAPI(t)
	api.put(podOf("web-0", corev1.PodRunning))
	sources := APISources(api.client, sets, APIOptions{}, slog.New(slog.DiscardHandler))
	var names, objects []string
	for _, source := range sources {
		names = append(names, source.String())
		changes, err := source.List(t.Context())
		must(t, err)
		for _, c := range changes {
			objects = append(objects, c.Object+" "+c.Peers[0].Service)
		}
	}
	wantNames := []string{
		"pods in namespace bank", "pods in namespace shop", "pods in namespace shop with app=web", "endpoints in all namespaces",
	}
	if !slices.Equal(names, wantNames) {
		t.Errorf("sources: got %q, want %q", names, wantNames)
	}
	wantObjects := []string{"pod/shop/web-0@one one", "pod/shop/web-0@two two"}
	if !slices.Equal(objects, wantObjects) {
		t.Errorf("objects: got %q, want %q", objects, wantObjects)
	}
}

// A complete list takes away what is not in it, of every set that shares the source.
func TestACompleteListReplaces(t *testing.T) {
	source := &apiSource{
		selection: selection{kind: Pods}, sets: []Rules{{Set: "one"}, {Set: "two"}}, change: Rules.change, known: map[string]string{},
		faults: newFaults(slog.New(slog.DiscardHandler)),
	}
	list := func(names ...string) Batch {
		var all listing
		for _, name := range names {
			object, err := source.read(podOf(name, corev1.PodRunning))
			must(t, err)
			all.objects = append(all.objects, object)
		}
		return source.replace(all)
	}
	event := func(kind watch.EventType, name string) Batch {
		b, err := source.event(watch.Event{Type: kind, Object: podOf(name, corev1.PodRunning)})
		must(t, err)
		return b
	}
	var got []string
	for _, b := range []Batch{list("a"), event(watch.Added, "b"), list("b"), event(watch.Deleted, "b")} {
		text := fmt.Sprint(b.Complete, ":")
		slices.SortFunc(b.Changes, func(a, b zone.Change) int { return strings.Compare(a.Object, b.Object) })
		for _, c := range b.Changes {
			text += fmt.Sprint(" ", c.Object, " ", len(c.Peers))
		}
		got = append(got, text)
	}
	want := []string{
		"true: pod/shop/a@one 1 pod/shop/a@two 1",
		"false: pod/shop/b@one 1 pod/shop/b@two 1",
		"true: pod/shop/a@one 0 pod/shop/a@two 0 pod/shop/b@one 1 pod/shop/b@two 1",
		"false: pod/shop/b@one 0 pod/shop/b@two 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
