package zone

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The examples of RFC 1982 §5.2, in 32 bits.
func TestSerialAfter(t *testing.T) {
	for _, test := range []struct {
		a, b uint32
		want bool
	}{
		{1, 0, true},
		{44, 0, true},
		{100, 44, true},
		{200 << 24, 100 << 24, true},
		{255 << 24, 200 << 24, true},
		{0, 255 << 24, true},
		{100 << 24, 255 << 24, true},
		{0, 0, false},
		{0, 1, false},
		{1 << 31, 0, false}, // half the circle apart: undefined
		{0, 1 << 31, false},
	} {
		if got := serialAfter(test.a, test.b); got != test.want {
			t.Errorf("%d after %d: got %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

func TestAZoneContinuesItsSerial(t *testing.T) {
	apex := mustName(t, "peers.test.")
	for _, test := range []struct{ serial, last, want uint32 }{
		{serial: 1000, last: 900, want: 1000}, // the clock is ahead
		{serial: 1000, last: 1000, want: 1001},
		{serial: 1000, last: 2000, want: 2001},
		{serial: 1000, last: 1<<32 - 5, want: 1000}, // it wrapped meanwhile
		{serial: 1<<32 - 5, last: 10, want: 11},     // it wrapped before
		{serial: 0, last: 1<<32 - 1, want: 0},
		{serial: 0, last: 1 << 31, want: 1<<31 + 1}, // undefined: what was served decides
	} {
		for name, key := range map[string]Name{"a zone": apex, "the addresses": Root} {
			store, err := NewStore(Config{Zones: []Name{apex}, Serial: test.serial, Continues: map[Name]uint32{key: test.last}})
			if err != nil {
				t.Fatal(err)
			}
			if got := store.View().Serials()[key]; got != test.want {
				t.Errorf("%s, from %d with the clock at %d: got %d, want %d", name, test.last, test.serial, got, test.want)
			}
		}
	}
}

func TestSerialsAreThoseOfEveryZone(t *testing.T) {
	store := newReverseStore(t, []string{"192.0.2.0/24"}, "peers.test.", "other.test.")
	store.Apply(Change{Object: "a", Peers: randomPeers(rand.New(rand.NewPCG(3, 3)))})
	view := store.View()
	serials := view.Serials()
	if got, want := slices.SortedFunc(maps.Keys(serials), Name.Compare), view.Zones(); !slices.Equal(got, want) {
		t.Errorf("zones: got %v, want %v", got, want)
	}
	for apex, serial := range serials {
		if want := view.Serial(apex); serial != want {
			t.Errorf("%s: got %d, want %d", apex, serial, want)
		}
	}
}

// What Objects gives makes the same zone again.
func TestObjectsAreAllThatAViewHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	store := newTestStore(t, "peers.test.")
	for i := range 200 {
		c := Change{Object: fmt.Sprint("object/", random.IntN(20)), Peers: randomPeers(random)}
		if i%3 == 0 {
			c.Warnings = []string{"odd"}
		}
		for _, peer := range randomPeers(random) {
			c.Excluded = append(c.Excluded, Exclusion{peer, Failed})
		}
		store.Apply(c)
	}
	again := newTestStore(t, "peers.test.")
	again.Apply(slices.Collect(store.View().Objects())...)
	if diff := cmp.Diff(strings.Split(master(t, store.View()), "\n"), strings.Split(master(t, again.View()), "\n")); diff != "" {
		t.Errorf("the zone differs (-first +again):\n%s", diff)
	}
	if diff := cmp.Diff(store.View().Excluded(), again.View().Excluded(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("exclusions differ (-first +again):\n%s", diff)
	}
	if got, want := again.View().Counts(), store.View().Counts(); got != want {
		t.Errorf("counts: got %+v, want %+v", got, want)
	}
}
