package watcher

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"peerdns/zone"
)

// maxSnapshotSize bounds what is read at the start: about two million peers.
const maxSnapshotSize = 1 << 30 // octets

// SnapshotOptions are what a Snapshot is made of.
type SnapshotOptions struct {
	Path   string
	MaxAge time.Duration // an older one is ignored; more than 0
	Config string        // see Fingerprint; a snapshot of another one is ignored
	Log    *slog.Logger
}

// Snapshot is the file with the last known peers, for a start without the API. No fault of it stops anything.
type Snapshot struct {
	SnapshotOptions
	create createFile

	// What was read. These belong to Watcher.Run once that has begun.
	usable  bool
	known   time.Time // when the sources last said so
	serials map[zone.Name]uint32
	changes []zone.Change

	stale  atomic.Pointer[time.Time] // known, while the zones hold what was read; else nil
	newest atomic.Pointer[zone.View] // the last one offered
	offers chan struct{}             // of one: newest is new

	mu     sync.Mutex // guards what follows
	status SnapshotStatus
	logged time.Time // the last time that the fault that lasts was logged
}

// SnapshotStatus says how the file is doing.
type SnapshotStatus struct {
	Known  time.Time // when the sources last said what the file has; zero: there is no file that could be used
	Err    error     // of the last attempt to write it; nil: it was successful, or there was none
	Since  time.Time // when the fault that lasts began; zero: none lasts
	Faults int       // failed attempts so far
}

// Fingerprint returns a text that is the same for the same peer sets and settings. A snapshot holds what one configuration
// made of the objects: another would make something else of them.
func Fingerprint(sets []PeerSet, settings ...string) string {
	type set struct {
		Kind       Kind
		Namespaces []string
		Selector   string
		Rules      Rules // all of it, so that no setting to come is forgotten
	}
	all := make([]set, len(sets))
	for i, s := range sets {
		all[i] = set{s.Kind, s.Namespaces, s.Selector.String(), s.Rules}
	}
	encoded, err := json.Marshal([]any{all, settings})
	if err != nil {
		panic("watcher: peer sets are values: " + err.Error())
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// OpenSnapshot reads the file and says in the log what became of it.
func OpenSnapshot(o SnapshotOptions) *Snapshot {
	o.Log = o.Log.With("path", o.Path)
	s := &Snapshot{SnapshotOptions: o, create: createTemp, offers: make(chan struct{}, 1)}
	err := s.read(time.Now())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Log.Info("no snapshot yet, the first one comes after the first complete list")
	case err != nil:
		s.Log.Warn("snapshot ignored", "err", err)
	default:
		s.Log.Info("snapshot read, its peers are served until every source is complete",
			"objects", len(s.changes), "age", max(0, time.Since(s.known)).Round(time.Millisecond))
	}
	return s
}

// Serials returns the serial numbers that the zones had, for zone.Config.Continues.
func (s *Snapshot) Serials() map[zone.Name]uint32 {
	if s == nil {
		return nil
	}
	return s.serials
}

// Status says how the file is doing. Any goroutine may call it.
func (s *Snapshot) Status() SnapshotStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Snapshot) read(now time.Time) error {
	info, err := os.Stat(s.Path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > maxSnapshotSize:
		return fmt.Errorf("of %d octets, at most %d are read", info.Size(), maxSnapshotSize)
	}
	content, err := os.ReadFile(s.Path)
	if err != nil {
		return err
	}
	head, changes, err := readSnapshot(content, func(h snapshotHead) error { return s.check(h, now) })
	if err != nil {
		return err
	}
	serials := make(map[zone.Name]uint32, len(head.Serials))
	for apex, serial := range head.Serials {
		name, err := zone.ParseName(apex)
		if err != nil {
			return fmt.Errorf("%w: serials: %w", errSnapshotDamaged, err)
		}
		serials[name] = serial
	}
	s.usable, s.known, s.serials, s.changes = true, head.Time, serials, changes
	s.status.Known = head.Time
	return nil
}

// check tells whether what the file is of can be used now.
func (s *Snapshot) check(h snapshotHead, now time.Time) error {
	switch age := now.Sub(h.Time); {
	case h.Config != s.Config:
		return errors.New("of another configuration: other zones, sources or peer sets")
	case age > s.MaxAge:
		return fmt.Errorf("too old: %s, at most %s", age.Round(time.Second), s.MaxAge)
	case age < -s.MaxAge:
		return fmt.Errorf("from the future: of %s", h.Time.Format(time.RFC3339))
	}
	return nil
}

// apply fills the zones with what was read, and returns the names of its objects; nil if there is nothing to use.
func (s *Snapshot) apply(zones Applier) map[string]bool {
	if s == nil || !s.usable {
		return nil
	}
	unheard := make(map[string]bool, len(s.changes))
	for i := range s.changes {
		unheard[s.changes[i].Object] = true
	}
	known := s.known
	s.stale.Store(&known) // first, so that nobody takes the view for a fresh one
	zones.Apply(s.changes...)
	s.changes = nil
	return unheard
}

// replaced says that the sources have given the view, and that it is to be written. Views that are the last one again
// cost nothing.
func (s *Snapshot) replaced(view *zone.View) {
	if s == nil || s.newest.Swap(view) == view {
		return
	}
	s.stale.Store(nil)
	select {
	case s.offers <- struct{}{}:
	default: // the writer will find the newest
	}
}

// Stale tells whether the zones hold only what a snapshot said, and when that was known. Any goroutine may call it.
func (s *Snapshot) Stale() (known time.Time, stale bool) {
	if s == nil {
		return time.Time{}, false
	}
	at := s.stale.Load()
	if at == nil {
		return time.Time{}, false
	}
	return *at, true
}
