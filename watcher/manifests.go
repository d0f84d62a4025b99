package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"peerdns/zone"
)

// Manifests is the source that reads objects from files, as "kubectl get -o yaml" or "-o json" prints them, instead of
// the API. It follows the files. A file that cannot be read, or not whole, keeps the objects that it had.
type Manifests struct {
	paths []string
	sets  []PeerSet
	log   *slog.Logger
	*faults

	broken atomic.Pointer[error] // of the first file that cannot be read; nil for none

	interval time.Duration // after which the files are looked at without an event

	// These belong to whoever runs List or Run, of which there is one at a time.
	files   map[string]*manifestFile // by path
	said    map[string]bool          // objects that have been sent
	changed bool                     // the files say something else than what was sent
	passed  map[string]bool          // what is no regular file in a folder, and has been logged
	follow  watchedTrail
}

// NewManifests returns the source that reads the files and folders at paths. Of a folder it reads the files in it
// whose name ends in .yaml, .yml or .json and does not begin with a dot. It fails if a path is not there, or is neither
// a regular file nor a folder.
func NewManifests(paths []string, sets []PeerSet, log *slog.Logger) (*Manifests, error) {
	var errs []error
	cleaned := make([]string, 0, len(paths))
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		} else if !info.IsDir() {
			errs = append(errs, checkRegular(path, info))
		}
		cleaned = append(cleaned, filepath.Clean(path))
	}
	m := &Manifests{
		paths: cleaned, sets: sets, log: log, interval: lookInterval,
		files: map[string]*manifestFile{}, said: map[string]bool{}, passed: map[string]bool{},
	}
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
func (m *Manifests) List(ctx context.Context) ([]zone.Change, error) {
	err := m.round(ctx, nil)
	if ctx.Err() != nil {
		return nil, ctx.Err() // and the round may still be running
	}
	errs := []error{err}
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		errs = append(errs, m.files[path].err)
	}
	return m.changes(), errors.Join(errs...)
}

// Run reads the files and follows them until the context ends. The first batch comes when every file could be read.
// A file that comes later and cannot be read has no objects, and holds up none.
func (m *Manifests) Run(ctx context.Context, out Sink) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		m.log.Error("no events of files: changes are seen late", "err", err, "interval", m.interval)
	} else {
		defer notify.Close()
	}
	for synced := false; ; {
		err := m.round(ctx, notify)
		if ctx.Err() != nil {
			return
		}
		m.note(ctx, err)
		first := !synced && err == nil && m.complete()
		if first || synced && m.changed {
			if !out(Batch{Changes: m.changes(), Complete: true}) {
				return
			}
			synced = true
		}
		if !m.awaitChange(ctx, notify) {
			return
		}
	}
}

// round watches and reads everything once. It returns when the context ends even if the file system hangs; then what
// belongs to the round must not be touched any more.
func (m *Manifests) round(ctx context.Context, notify *fsnotify.Watcher) error {
	done := make(chan error, 1)
	go func() {
		// Watch first, so that what changes while we read is read again.
		if notify != nil {
			m.watch(notify)
		}
		done <- m.read()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read reads every file that has changed. Its error is that of a path that cannot be listed: then the files that were
// found there stay.
func (m *Manifests) read() error {
	found := map[string]bool{}
	var errs []error
	for _, path := range m.paths {
		paths, err := m.manifestPaths(path)
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
			m.changed = true
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

// manifestPaths returns the files to read at a path. A folder whose files are gone has none, which takes their objects
// away: that is how one deletes them. But a file that has become a folder of no files is a fault, since nobody deletes
// in this way: a mount that lost its file looks so.
func (m *Manifests) manifestPaths(path string) ([]string, error) {
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
		if file := filepath.Join(path, entry.Name()); isManifest(entry.Name()) && !m.passOver(file) {
			paths = append(paths, file)
		}
	}
	if m.files[path] != nil && len(paths) == 0 {
		return nil, fmt.Errorf("%s: was a file and is now a folder without manifests: remove it, or put the file back", path)
	}
	return paths, nil
}

// isManifest tells whether a file of this name is read in a folder.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// passOver tells whether what stands in a folder is no file to read: a folder, a pipe, a device. What is not there, as
// behind a dangling link, is a file with a fault.
func (m *Manifests) passOver(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		delete(m.passed, path)
		return false
	}
	if !info.IsDir() && !m.passed[path] {
		m.passed[path] = true
		m.log.Warn("passed over: no regular file", "path", path, "type", info.Mode().Type().String())
	}
	return true
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
	m.changed = false
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
