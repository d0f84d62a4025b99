package watcher

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerdns/zone"
)

// settle is how long after an event the files are read again: an editor takes several steps to save one.
const settle = 50 * time.Millisecond

// Manifests is the source that reads objects from files, as "kubectl get -o yaml" or "-o json" prints them, instead of
// the API. It follows the files. A file that cannot be read, or not whole, keeps the objects that it had.
type Manifests struct {
	paths []string
	sets  []PeerSet
	log   *slog.Logger
	*faults

	broken atomic.Pointer[error] // of the first file that cannot be read; nil for none

	// These belong to whoever runs List or Run, of which there is one at a time.
	files map[string]*manifestFile // by path
	said  map[string]bool          // objects that have been sent
}

// manifestFile is a file as it was last read.
type manifestFile struct {
	sum     [sha256.Size]byte // of the text that was last decoded
	decoded bool              // sum is valid, and the last try could read the file
	err     error             // of the last try; nil when it was good
	good    bool              // some try was good
	changes []zone.Change
}

// NewManifests returns the source that reads the files and folders at paths. Of a folder it reads the files in it
// whose name ends in .yaml, .yml or .json and does not begin with a dot. It fails if a path is not there.
func NewManifests(paths []string, sets []PeerSet, log *slog.Logger) (*Manifests, error) {
	var errs []error
	cleaned := make([]string, 0, len(paths))
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
		cleaned = append(cleaned, filepath.Clean(path))
	}
	m := &Manifests{paths: cleaned, sets: sets, log: log, files: map[string]*manifestFile{}, said: map[string]bool{}}
	m.faults = newFaults(log.With("source", m.String()))
	return m, errors.Join(errs...)
}

// Health returns the health of the source: a file that cannot be read is a fault of it too.
func (m *Manifests) Health() Health {
	h := m.faults.Health()
	if broken := m.broken.Load(); h.Err == nil && broken != nil {
		h.Err = *broken
	}
	return h
}

func (m *Manifests) String() string { return "manifests in " + strings.Join(m.paths, ", ") }

// List reads every file once.
func (m *Manifests) List(context.Context) ([]zone.Change, error) {
	errs := []error{m.read()}
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		errs = append(errs, m.files[path].err)
	}
	return m.changes(), errors.Join(errs...)
}

// Run reads the files and follows them until the context ends. The first batch comes when every file could be read.
func (m *Manifests) Run(ctx context.Context, out Sink) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		m.log.Error("files are not followed: changes to them will not be seen", "err", err)
	} else {
		defer notify.Close()
	}
	for {
		// Watch first, so that what changes while we read is read again.
		if notify != nil {
			m.watch(notify)
		}
		m.note(ctx, m.read())
		if m.complete() && !out(Batch{Changes: m.changes(), Complete: true}) {
			return
		}
		if !m.awaitChange(ctx, notify) {
			return
		}
	}
}

// watch asks for events of every folder in which something decides what the paths are. A folder is watched and not a
// file, since an editor's rename or the swap of a ConfigMap's link leaves a watched file behind.
func (m *Manifests) watch(notify *fsnotify.Watcher) {
	watched := notify.WatchList()
	for _, path := range m.paths {
		for _, dir := range foldersToWatch(path) {
			if slices.Contains(watched, dir) {
				continue
			}
			if err := notify.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.log.Warn("folder is not followed", "err", err, "path", dir)
			}
		}
	}
}

func foldersToWatch(path string) []string {
	dirs := []string{filepath.Dir(path)}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		dirs = append(dirs, path)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		dirs = append(dirs, filepath.Dir(target))
	}
	for parent := filepath.Dir(path); parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
		if info, err := os.Lstat(parent); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			dirs = append(dirs, filepath.Dir(parent))
		}
	}
	return dirs
}

// awaitChange returns true a moment after something has happened to the files, false when the context ended.
func (m *Manifests) awaitChange(ctx context.Context, notify *fsnotify.Watcher) bool {
	if notify == nil {
		<-ctx.Done()
		return false
	}
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-settled:
			return true
		case <-notify.Events:
		case err := <-notify.Errors:
			// Events may have been lost: reading everything again makes up for them.
			m.log.Warn("following files", "err", err)
		}
		if settled == nil {
			settled = time.After(settle)
		}
	}
}

// read reads every file that has changed. Its error is that of a path that cannot be listed: then the files that were
// found there stay.
func (m *Manifests) read() error {
	found := map[string]bool{}
	var errs []error
	for _, path := range m.paths {
		paths, err := manifestPaths(path)
		if err != nil {
			errs = append(errs, err)
			for known := range m.files {
				found[known] = found[known] || known == path || filepath.Dir(known) == path
			}
			continue
		}
		for _, p := range paths {
			found[p] = true
			m.readFile(p)
		}
	}
	for path := range m.files {
		if !found[path] {
			m.log.Info("manifest is gone", "path", path)
			delete(m.files, path)
		}
	}
	m.broken.Store(nil)
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		if err := m.files[path].err; err != nil {
			m.broken.Store(&err)
			break
		}
	}
	return errors.Join(errs...)
}

func manifestPaths(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		name := entry.Name()
		switch filepath.Ext(name) {
		case ".yaml", ".yml", ".json":
			if info, err := os.Stat(filepath.Join(path, name)); !strings.HasPrefix(name, ".") && (err != nil || !info.IsDir()) {
				paths = append(paths, filepath.Join(path, name))
			}
		}
	}
	return paths, nil
}

func (m *Manifests) readFile(path string) {
	file := m.files[path]
	if file == nil {
		file = new(manifestFile)
		m.files[path] = file
	}
	text, err := os.ReadFile(path)
	var objects []manifestObject
	if err == nil {
		sum := sha256.Sum256(text)
		if file.decoded && sum == file.sum {
			return
		}
		file.sum = sum
		objects, err = decodeManifests(path, text)
		file.decoded = true
	} else {
		file.decoded = false
	}
	file.err = err
	if err != nil {
		m.log.Error("manifest cannot be read, its last good objects stay", "err", err, "path", path, "objects", len(file.changes))
		return
	}
	file.good = true
	file.changes = file.changes[:0:0]
	for _, o := range objects {
		for _, set := range m.sets {
			if set.Kind == o.kind && set.selects(o.object.(metav1.Object)) {
				file.changes = append(file.changes, set.change(o.object))
			}
		}
	}
	m.log.Debug("manifest read", "path", path, "objects", len(file.changes))
}

// complete tells whether every file has been good once.
func (m *Manifests) complete() bool {
	for _, file := range m.files {
		if !file.good {
			return false
		}
	}
	return true
}

// changes returns all that the files say, and that what they no longer speak of is gone. Of several files that have
// the same object the last by path counts.
func (m *Manifests) changes() []zone.Change {
	gone := m.said
	m.said = map[string]bool{}
	byObject := map[string]zone.Change{}
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		for _, c := range m.files[path].changes {
			byObject[c.Object] = c
			m.said[c.Object] = true
			delete(gone, c.Object)
		}
	}
	for name := range gone {
		byObject[name] = zone.Change{Object: name}
	}
	return slices.Collect(maps.Values(byObject))
}
