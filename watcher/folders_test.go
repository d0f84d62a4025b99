package watcher

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inFolder makes the folders of a path below dir, and returns it.
func inFolder(t *testing.T, dir, path string) string {
	t.Helper()
	path = filepath.Join(dir, path)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	return path
}

// link makes a link, or swaps the one that is there.
func link(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path+".new"))
	must(t, os.Rename(path+".new", path))
}

// Whatever is replaced on the way to a file, the new file is seen, and what is changed after that too.
func TestManifestsFollowWhatIsReplacedOnTheWay(t *testing.T) {
	for name, test := range map[string]struct {
		file, path string // where the text is, and what is given; both below a folder of the test
		links      func(t *testing.T, dir string)
		replace    func(t *testing.T, dir, text string)
	}{
		"the folder of a file": {
			file: "a/b/web.yaml", path: "a/b/web.yaml",
			replace: func(t *testing.T, dir, text string) {
				must(t, os.RemoveAll(filepath.Join(dir, "a/b")))
				write(t, inFolder(t, dir, "a/b/web.yaml"), text)
			},
		},
		"the folder above a folder": {
			file: "a/b/web.yaml", path: "a/b",
			replace: func(t *testing.T, dir, text string) {
				must(t, os.RemoveAll(filepath.Join(dir, "a")))
				write(t, inFolder(t, dir, "a/b/web.yaml"), text)
			},
		},
		"a folder by a rename": {
			file: "a/b/web.yaml", path: "a/b",
			replace: func(t *testing.T, dir, text string) {
				write(t, inFolder(t, dir, "new/b/web.yaml"), text)
				must(t, os.RemoveAll(filepath.Join(dir, "old")))
				must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "old")))
				must(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "a")))
			},
		},
		"the target of a link in a folder, edited": {
			file: "o/web.yaml", path: "m",
			links: func(t *testing.T, dir string) {
				must(t, os.Symlink("../o/web.yaml", inFolder(t, dir, "m/web.yaml")))
			},
			replace: func(t *testing.T, dir, text string) { write(t, filepath.Join(dir, "o/web.yaml"), text) },
		},
		"the target of a link in a folder, swapped": {
			file: "o/web.yaml", path: "m",
			links: func(t *testing.T, dir string) {
				must(t, os.Symlink(filepath.Join(dir, "o/web.yaml"), inFolder(t, dir, "m/web.yaml")))
			},
			replace: func(t *testing.T, dir, text string) {
				write(t, filepath.Join(dir, "o/new"), text)
				must(t, os.Rename(filepath.Join(dir, "o/new"), filepath.Join(dir, "o/web.yaml")))
			},
		},
		"a link in the middle of a chain": {
			file: "o2/v1.yaml", path: "m/web.yaml",
			links: func(t *testing.T, dir string) {
				must(t, os.Symlink("../o2/v1.yaml", inFolder(t, dir, "o/cur.yaml")))
				must(t, os.Symlink("../o/cur.yaml", inFolder(t, dir, "m/web.yaml")))
			},
			replace: func(t *testing.T, dir, text string) {
				next := newFolder(t, dir)
				write(t, filepath.Join(next, "v.yaml"), text)
				link(t, filepath.Join("..", filepath.Base(next), "v.yaml"), filepath.Join(dir, "o/cur.yaml"))
			},
		},
		"a link to a folder above": {
			file: "v1/b/web.yaml", path: "cur/b/web.yaml",
			links: func(t *testing.T, dir string) { must(t, os.Symlink("v1", filepath.Join(dir, "cur"))) },
			replace: func(t *testing.T, dir, text string) {
				next := newFolder(t, dir)
				write(t, inFolder(t, next, "b/web.yaml"), text)
				link(t, filepath.Base(next), filepath.Join(dir, "cur"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, inFolder(t, dir, test.file), slice("a", "192.0.2.1"))
			if test.links != nil {
				test.links(t, dir)
			}
			store := follow(t, newLog(), filepath.Join(dir, test.path))
			awaitAddresses(t, store, "192.0.2.1")
			for i := 2; i < 5; i++ {
				addr := fmt.Sprintf("192.0.2.%d", i)
				test.replace(t, dir, slice("a", addr))
				awaitAddresses(t, store, addr)
			}
		})
	}
}

// Of a change through another name of the file there is no event.
func TestManifestsSeeWhatNoEventTells(t *testing.T) {
	dir := t.TempDir()
	file, other := inFolder(t, dir, "m/a.yaml"), inFolder(t, dir, "o/a.yaml")
	write(t, file, slice("a", "192.0.2.1"))
	must(t, os.Link(file, other))
	logger := slog.New(slog.DiscardHandler)
	source, err := NewManifests([]string{file}, everySlice(), logger)
	must(t, err)
	source.interval = 10 * time.Millisecond
	store := run(t, source, logger)
	awaitAddresses(t, store, "192.0.2.1")
	write(t, other, slice("a", "192.0.2.2"))
	awaitAddresses(t, store, "192.0.2.2")
}

func TestEventsOfOtherFilesAreIgnored(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	write(t, inFolder(t, dir, "o/v1.yaml"), "")
	must(t, os.Symlink("../o/v1.yaml", inFolder(t, dir, "m/web.yaml")))
	write(t, inFolder(t, dir, "f/single"), "")
	trail := newTrail([]string{filepath.Join(dir, "m"), filepath.Join(dir, "f/single"), filepath.Join(dir, "x/missing.yaml")})
	for path, want := range map[string]bool{
		"m": true, "m/web.yaml": true, "m/new.json": true, "o": true, "o/v1.yaml": true, "f": true, "f/single": true, "x": true,
		"m/peerdns.log": false, "m/.web.yaml": false, "o/v2.yaml": false, "f/other.yaml": false, "peerdns.log": false,
	} {
		if got := trail.concerns(filepath.Join(dir, path)); got != want {
			t.Errorf("event of %s: got %v, want %v", path, got, want)
		}
	}
	if !trail.concerns("/" + "/" + strings.Split(dir, "/")[1]) {
		t.Error("an event in the root, as fsnotify names it, is ignored")
	}
}

// A file whose state is the same is not read again.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	old := time.Now().Add(-time.Hour)
	put := func(addr string, at time.Time) {
		write(t, path, slice("a", addr))
		must(t, os.Chtimes(path, at, at))
	}
	put("192.0.2.1", old)
	source, err := NewManifests([]string{path}, everySlice(), slog.New(slog.DiscardHandler))
	must(t, err)
	addrs := func() string {
		changes, err := source.List(t.Context())
		must(t, err)
		return fmt.Sprint(changes[0].Peers[0].Addrs)
	}
	first := addrs()
	put("192.0.2.2", old)
	if got := addrs(); got != first {
		t.Errorf("same time and size: got %s, want %s as nothing is read", got, first)
	}
	put("192.0.2.3", old.Add(time.Second))
	if got := addrs(); got == first {
		t.Errorf("another time: got %s, want what the file says now", got)
	}
	// What has changed a moment ago may change again without a trace.
	now := time.Now()
	put("192.0.2.4", now)
	fresh := addrs()
	put("192.0.2.5", now)
	if got := addrs(); got == fresh {
		t.Errorf("a moment after a change: got %s, want what the file says now", got)
	}
}

func TestAFaultOfAFileIsLoggedWhenItBeginsChangesAndEnds(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	path := filepath.Join(dir, "a.yaml")
	must(t, os.Symlink("nowhere", path))
	source, err := NewManifests([]string{dir}, everySlice(), slog.New(slog.NewTextHandler(log, nil)))
	must(t, err)
	for _, test := range []struct {
		do   func()
		want string
	}{
		{func() {}, "no such file"},
		{func() { must(t, os.Remove(path)); must(t, os.Symlink("a.yaml", path)) }, "too many levels"},
		{func() { must(t, os.Remove(path)); write(t, path, "kind: [\n") }, "not YAML"},
		{func() { write(t, path, slice("a", "192.0.2.1")) }, "manifest can be read again"},
	} {
		test.do()
		log.text.Reset()
		for range 5 {
			_, _ = source.List(t.Context()) // the log is what counts
		}
		if got := log.text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) {
			t.Errorf("got %q, want one line with %q", got, test.want)
		}
	}
}

// newFolder makes a folder in dir, of a name that was not there.
func newFolder(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	path := filepath.Join(dir, fmt.Sprint("next-", len(entries)))
	must(t, os.Mkdir(path, 0o700))
	return path
}
