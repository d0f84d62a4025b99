package watcher

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"peerdns/zone"
)

const (
	snapshotPause   = time.Second // between two writes while changes go on
	snapshotRefresh = time.Hour   // at most, until a file whose peers are still right is dated anew
	snapshotStray   = time.Minute // age of a temporary file that nobody writes any more
	snapshotTemp    = "*.tmp"     // the end of its name; * is a number
)

// tempFile is a file that becomes the snapshot. *os.File is one.
type tempFile interface {
	io.WriteCloser
	Name() string
	Sync() error
}

// createFile makes a new file with mode 0600 in a folder.
type createFile func(dir, pattern string) (tempFile, error)

func createTemp(dir, pattern string) (tempFile, error) { return os.CreateTemp(dir, pattern) }

// run writes the views that are offered, and a last one when stop closes. known says since when what is served may be out
// of date: now, if no source has a fault.
func (s *Snapshot) run(stop <-chan struct{}, known func() time.Time) {
	refresh := time.NewTicker(max(min(s.MaxAge/24, snapshotRefresh), snapshotPause))
	defer refresh.Stop()
	for dirty := false; ; {
		select {
		case <-stop:
			if s.newest.Load() != nil {
				s.save(known())
			}
			return
		case <-s.offers:
			dirty = true
		case <-refresh.C:
			dirty = dirty || s.newest.Load() != nil && known().After(s.Status().Known)
		}
		for dirty {
			began := time.Now()
			dirty = !s.save(known())
			// A large zone on a slow disk is no reason to do nothing but write.
			pause := max(snapshotPause, 9*time.Since(began))
			select {
			case <-stop:
				s.save(known())
				return
			case <-time.After(pause):
			}
		}
	}
}

// save writes the newest view and notes the result. It tells whether it was successful.
func (s *Snapshot) save(known time.Time) bool {
	view := s.newest.Load()
	err := s.write(view, known)
	s.note(err, known)
	return err == nil
}

// write puts a new file in the place of the old one: whoever reads finds one of the two whole, whenever we or the machine
// end.
func (s *Snapshot) write(view *zone.View, known time.Time) error {
	dir, base := filepath.Dir(s.Path), "."+filepath.Base(s.Path)+"."
	removeStrays(dir, base)
	file, err := s.create(dir, base+snapshotTemp)
	if err != nil {
		return err
	}
	head := snapshotHead{Config: s.Config, Time: known.UTC(), Serials: map[string]uint32{}}
	for apex, serial := range view.Serials() {
		head.Serials[apex.String()] = serial
	}
	err = writeSnapshot(file, head, view.Objects())
	if err == nil {
		err = file.Sync() // before the rename: the name must never stand for what is not on the disk yet
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), s.Path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // or removeStrays does it
		return err
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// removeStrays removes what earlier processes have left when they were killed while they wrote. The file of another process
// that writes now, as the one whose place we take, is younger.
func removeStrays(dir, base string) {
	entries, _ := os.ReadDir(dir) // a fault of the folder shows when the file is made
	for _, entry := range entries {
		if matches, _ := filepath.Match(snapshotTemp, strings.TrimPrefix(entry.Name(), base)); !matches || !strings.HasPrefix(entry.Name(), base) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > snapshotStray {
			_ = os.Remove(filepath.Join(dir, entry.Name())) // or the next time
		}
	}
}

// note keeps the result of one attempt, and logs a fault: once when it begins, once a minute while it lasts, once when it
// ends.
func (s *Snapshot) note(err error, known time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, st := time.Now(), &s.status
	began := st.Since
	st.Err = err
	if err == nil {
		st.Known, st.Since = known, time.Time{}
		if !began.IsZero() {
			s.Log.Info("snapshot is written again", "duration", now.Sub(began).Round(time.Millisecond))
		}
		return
	}
	st.Faults++
	switch {
	case began.IsZero():
		st.Since, s.logged = now, now
		s.Log.Warn("snapshot cannot be written, a start without the API would have an older one or none", "err", err)
	case now.Sub(s.logged) >= faultInterval:
		s.logged = now
		s.Log.Warn("snapshot still cannot be written", "err", err, "duration", now.Sub(began).Round(time.Second))
	}
}
