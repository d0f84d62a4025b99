package zone

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// master returns all zones as text without the serials, which count the changes on the way.
func master(t *testing.T, view *View) string {
	t.Helper()
	var text strings.Builder
	for _, apex := range view.Zones() {
		text.WriteString(masterOf(t, view, apex))
	}
	if view.addresses != nil {
		text.WriteString(contents(t, view)[""].records)
	}
	return text.String()
}

func masterOf(t *testing.T, view *View, apex Name) string {
	t.Helper()
	var text strings.Builder
	if err := view.WriteMaster(&text, apex); err != nil {
		t.Fatal(err)
	}
	_, records, _ := strings.Cut(text.String(), "\n")
	return records
}

// Whatever came before, and in whatever order the objects came: the same final objects give the same zone.
func TestAnyOrderOfTheSameObjectsGivesTheSameZone(t *testing.T) {
	for mode, reverse := range reverseModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			applyInAnyOrder(t, reverse.ranges)
		})
	}
}

func applyInAnyOrder(t *testing.T, ranges []string) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 2))
		var final []Change
		for i := range 10 {
			c := Change{Object: fmt.Sprint("object/", i), Peers: randomPeers(random)}
			for _, peer := range randomPeers(random) {
				c.Excluded = append(c.Excluded, Exclusion{peer, Terminating})
			}
			final = append(final, c)
		}
		fresh := newReverseStore(t, ranges, "peers.test.")
		fresh.Apply(final...)
		for range 5 {
			store := newReverseStore(t, ranges, "peers.test.")
			for range 20 { // a past that must leave no trace
				store.Apply(Change{Object: fmt.Sprint("object/", random.IntN(15)), Peers: randomPeers(random)})
			}
			for i := 10; i < 15; i++ {
				store.Apply(Change{Object: fmt.Sprint("object/", i)})
			}
			for _, i := range random.Perm(len(final)) {
				store.Apply(final[i])
			}
			if diff := cmp.Diff(master(t, fresh.View()), master(t, store.View())); diff != "" {
				t.Fatalf("seed %d (-at once +one by one):\n%s", seed, diff)
			}
			if diff := cmp.Diff(exclusions(fresh.View().Excluded()), exclusions(store.View().Excluded())); diff != "" {
				t.Fatalf("seed %d, exclusions (-at once +one by one):\n%s", seed, diff)
			}
		}
	}
}

func exclusions(excluded []Exclusion) []string {
	var text []string
	for _, e := range excluded {
		text = append(text, fmt.Sprint(e))
	}
	return text
}

// Three pods had one address, two of them are finished: in all six orders it is the live one's.
func TestAnAddressIsTheLivePods(t *testing.T) {
	live := Change{Object: "pod/shop/live", Peers: []Peer{peerAt("web", "live", "192.0.2.1")}}
	done := func(name string) Change {
		return Change{Object: "pod/shop/" + name, Excluded: []Exclusion{{peerAt("web", name, "192.0.2.1"), Succeeded}}}
	}
	changes := []Change{live, done("one"), done("two")}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		store := newTestStore(t, "peers.test.")
		for _, i := range order {
			store.Apply(changes[i])
		}
		for name, want := range map[string]Outcome{
			"192-0-2-1.shop.pod.peers.test.": Success, "live.web.shop.svc.peers.test.": Success,
			"one.web.shop.svc.peers.test.": NXDomain, "two.web.shop.svc.peers.test.": NXDomain,
		} {
			if got := outcome(t, store, name, 1); got != want {
				t.Errorf("order %v: %s: got %v, want %v", order, name, got, want)
			}
		}
	}
}

func TestAnExclusionIsFoundAtTheNamesThatItTakesAway(t *testing.T) {
	store := newTestStore(t, "peers.test.")
	leaving := peerAt("web", "web-0", "192.0.2.1", "2001:db8::1")
	leaving.Pod, leaving.Ports = "web-0", []Port{{"http", "tcp", 80}}
	other := peerAt("web", "", "192.0.2.2")
	other.Pod = "web-1"
	store.Apply(Change{Object: "a", Excluded: []Exclusion{{other, NotReady}, {leaving, Terminating}}})
	for name, want := range map[string]string{
		"web.shop.svc.peers.test.":            "[pod shop/web-0 excluded: terminating pod shop/web-1 excluded: not-ready]",
		"_nodes.web.shop.svc.peers.test.":     "[pod shop/web-0 excluded: terminating pod shop/web-1 excluded: not-ready]",
		"web-0.web.shop.svc.peers.test.":      "[pod shop/web-0 excluded: terminating]",
		"192-0-2-2.web.shop.svc.peers.test.":  "[pod shop/web-1 excluded: not-ready]",
		"_http._tcp.web.shop.svc.peers.test.": "[pod shop/web-0 excluded: terminating]",
		"2001-DB8-0--1.shop.pod.peers.test.":  "[pod shop/web-0 excluded: terminating]",
		"192-0-2-1.web.shop.svc.peers.test.":  "[]",
		"192-0-2-1.bank.pod.peers.test.":      "[]",
		"shop.svc.peers.test.":                "[]",
		"peers.test.":                         "[]",
		"other.test.":                         "[]",
	} {
		if got := fmt.Sprint(store.View().ExcludedAt(mustName(t, name))); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	store.Apply(Change{Object: "a", Excluded: []Exclusion{{other, NotReady}}})
	if got := fmt.Sprint(store.View().ExcludedAt(mustName(t, "web.shop.svc.peers.test."))); got != "[pod shop/web-1 excluded: not-ready]" {
		t.Errorf("after one was gone: got %s", got)
	}
	store.Apply(Change{Object: "a"})
	if got := store.View().ExcludedAt(mustName(t, "web.shop.svc.peers.test.")); len(got) > 0 {
		t.Errorf("after all were gone: got %v", got)
	}
}
