package watcher

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long after an event the files are read again: an editor takes several steps to save one.
	settle = 50 * time.Millisecond

	// lookInterval is how often the files are looked at without an event, so that a lost one heals.
	lookInterval = 10 * time.Second

	// maxLinks is how many links a path may lead through, as in the kernel.
	maxLinks = 40
)

// trail is what decides to which files the paths lead. All paths in it are absolute, and no folder on them is a link.
type trail struct {
	folders map[string]bool // to watch
	names   map[string]bool // in these folders, what lies on the way: files, folders and links, there or not
	listed  map[string]bool // folders whose manifests are read
}

// watchedTrail is what is being followed.
type watchedTrail struct {
	trail
	faults map[string]string // by folder that cannot be watched: why, as it was logged
}

// newTrail follows the paths through every folder and every link. Folders are watched and not files, since an editor's
// rename or the swap of a ConfigMap's link leaves a watched file behind.
func newTrail(paths []string) trail {
	t := trail{folders: map[string]bool{}, names: map[string]bool{}, listed: map[string]bool{}}
	for _, path := range paths {
		end := t.walk(path)
		entries, err := os.ReadDir(end)
		if end == "" || err != nil {
			continue
		}
		t.folders[end], t.listed[end] = true, true
		for _, entry := range entries {
			if isManifest(entry.Name()) && entry.Type()&fs.ModeSymlink != 0 {
				t.walk(filepath.Join(end, entry.Name()))
			}
		}
	}
	return t
}

// walk follows one path as the kernel does, and returns where it ends; "" if nothing is there.
func (t trail) walk(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	const root = string(filepath.Separator)
	at, rest, links := root, steps(abs), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		t.folders[at], t.names[next] = true, true
		info, err := os.Lstat(next)
		if err != nil {
			return "" // when it comes, it comes into at
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return ""
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(steps(target), rest...)
	}
	return at
}

// steps returns the names in a path.
func steps(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
}

// concerns tells whether an event of this path may change what the files say.
func (t trail) concerns(path string) bool {
	path = filepath.Clean(path) // fsnotify says "//etc" of what is in the root
	return t.names[path] || t.folders[path] || t.listed[filepath.Dir(path)] && isManifest(filepath.Base(path))
}

func (t trail) equal(other trail) bool {
	return maps.Equal(t.folders, other.folders) && maps.Equal(t.names, other.names) && maps.Equal(t.listed, other.listed)
}

// watch asks for events of every folder on the way to the files.
func (m *Manifests) watch(notify *fsnotify.Watcher) {
	// A link may be swapped between our look at it and the watch: look again.
	for range 3 {
		t := newTrail(m.paths)
		again := !t.equal(m.follow.trail)
		m.follow.trail = t
		for dir := range t.folders {
			// Adding what is watched is cheap, and needed where another folder has taken the place.
			m.follow.note(m, dir, notify.Add(dir))
		}
		if !again {
			break
		}
	}
	for _, dir := range notify.WatchList() {
		if !m.follow.folders[dir] {
			_ = notify.Remove(dir) // it may have ended by itself
		}
	}
}

// note logs why a folder is not watched, once.
func (f *watchedTrail) note(m *Manifests, dir string, err error) {
	if f.faults == nil {
		f.faults = map[string]string{}
	}
	switch {
	case err == nil:
		delete(f.faults, dir)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fsnotify.ErrClosed):
	case f.faults[dir] != err.Error():
		f.faults[dir] = err.Error()
		m.log.Warn("no events of a folder: changes are seen late", "err", err, "path", dir, "interval", m.interval)
	}
}

// awaitChange returns true a moment after something has happened to the files, and from time to time; false when the
// context ended.
func (m *Manifests) awaitChange(ctx context.Context, notify *fsnotify.Watcher) bool {
	var events <-chan fsnotify.Event
	var faults <-chan error
	if notify != nil {
		events, faults = notify.Events, notify.Errors
	}
	look := time.After(m.interval)
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-settled:
			return true
		case <-look:
			return true
		case event := <-events:
			if !m.follow.concerns(event.Name) {
				continue
			}
		case err := <-faults:
			// Events may have been lost: looking at everything again makes up for them.
			m.log.Warn("following files", "err", err)
		}
		if settled == nil {
			settled = time.After(settle)
		}
	}
}
