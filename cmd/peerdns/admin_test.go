package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"peerdns/watcher"
	"peerdns/zone"
)

func TestHiddenZones(t *testing.T) {
	for zones, want := range map[string]int{
		"cluster.local peers.test": 0, "test peers.test": 0, "test svc.test": 1, "a.pod.test test": 1, "test svcx.test": 0,
	} {
		var names []zone.Name
		for text := range strings.FieldsSeq(zones) {
			name, err := zone.ParseName(text)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if got := hiddenZones(names); len(got) != want {
			t.Errorf("%s: got %q, want %d", zones, got, want)
		}
	}
}

func TestTheFirstSourceThatFailsForLongIsNamed(t *testing.T) {
	now := time.Unix(1e9, 0)
	failing := func(since time.Duration) watcher.Status {
		return watcher.Status{Source: "pods in namespace shop", Synced: true, Health: watcher.Health{
			Since: now.Add(-since), Err: errors.New("connection refused"),
		}}
	}
	for _, test := range []struct {
		sources []watcher.Status
		want    string
	}{
		{nil, ""},
		{[]watcher.Status{{Source: "fine", Health: watcher.Health{Contact: now.Add(-time.Hour)}}}, ""},
		{[]watcher.Status{failing(59 * time.Second)}, ""},
		{[]watcher.Status{failing(59 * time.Second), failing(90 * time.Second)}, "pods in namespace shop: no contact for 1m30s: connection refused"},
		{[]watcher.Status{failing(time.Minute)}, "pods in namespace shop: no contact for 1m0s: connection refused"},
	} {
		if got := failingFor(test.sources, time.Minute, now); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
