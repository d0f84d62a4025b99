package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"peerdns/zone"
)

func TestChangesAreWrittenOnceASecond(t *testing.T) {
	onStage(t, func(s *stage) {
		writes := 0
		s.create = func(dir, pattern string) (tempFile, error) {
			writes++
			return createTemp(dir, pattern)
		}
		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.stored("with no time gone", "192.0.2.1")
		s.wait(time.Minute)
		if writes != 1 {
			s.Errorf("a minute without a change: got %d writes, want 1", writes)
		}
		for i := range 100 {
			s.say(0, false, zone.Change{Object: "pod/shop/a", Peers: []zone.Peer{peerOf(fmt.Sprint("192.0.2.", 100+i))}})
			s.wait(100 * time.Millisecond)
		}
		s.wait(time.Second)
		if writes < 11 || writes > 12 {
			s.Errorf("ten seconds of changes: got %d writes in all, want 11 or 12", writes)
		}
		s.stored("a second later", "192.0.2.1 192.0.2.199")
		s.end()
	})
}

// What came within the second before the end is written, and without news the file is dated anew.
func TestTheEndIsWritten(t *testing.T) {
	onStage(t, func(s *stage) {
		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.say(0, false, sliceSays("b", "192.0.2.2"))
		s.stored("within the second", "192.0.2.1")
		s.end()
		s.stored("at the end", "192.0.2.1 192.0.2.2")

		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.wait(10 * time.Minute)
		s.end()
		if got := s.snapshot.Status().Known; !got.Equal(time.Now()) {
			s.Errorf("known: got %v, want %v, the end", got, time.Now())
		}
	})
}

// A file whose peers are still right must not become too old.
func TestAnUnchangedSnapshotIsDatedAnew(t *testing.T) {
	onStage(t, func(s *stage) {
		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		for range 50 {
			s.wait(time.Hour)
			if age := time.Since(s.snapshot.Status().Known); age > time.Hour {
				s.Fatalf("the file is %s old while the source is well", age)
			}
		}
		s.end()
	})
}

// faulty is a source with a fault.
type faulty struct {
	scripted
	since time.Time
}

func (f faulty) Health() Health { return Health{Since: f.since, Err: errors.New("away")} }

// The age is that of what is known: writing it again makes it no younger.
func TestWhatIsKnownAgesWhileASourceIsAway(t *testing.T) {
	onStage(t, func(s *stage) {
		since := time.Now()
		batches := make(chan Batch)
		snapshot := OpenSnapshot(SnapshotOptions{Path: s.path, MaxAge: 24 * time.Hour, Config: "c", Log: slog.New(slog.DiscardHandler)})
		w := New([]Source{faulty{scripted{batches}, since}}, newStore(s.T), slog.New(slog.DiscardHandler))
		w.Use(snapshot)
		ctx, cancel := context.WithCancel(s.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		batches <- Batch{Complete: true}
		s.wait(5 * time.Hour)
		cancel()
		running.Wait()
		if got := snapshot.Status().Known; !got.Equal(since) {
			s.Errorf("known: got %v, want %v, when the fault began", got, since)
		}
	})
}

func TestFaultsOfWriting(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "peers", Err: syscall.ENOSPC}
	for name, broken := range map[string]createFile{
		"no file":    func(string, string) (tempFile, error) { return nil, full },
		"full disk":  func(dir, pattern string) (tempFile, error) { return brokenFile(dir, pattern, full, nil, nil) },
		"full later": func(dir, pattern string) (tempFile, error) { return brokenFile(dir, pattern, nil, full, nil) },
		"full last":  func(dir, pattern string) (tempFile, error) { return brokenFile(dir, pattern, nil, nil, full) },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.start(1)
				s.say(0, true, sliceSays("a", "192.0.2.1"))
				s.end()
				var mended atomic.Bool
				s.create = func(dir, pattern string) (tempFile, error) {
					if !mended.Load() {
						return broken(dir, pattern)
					}
					return createTemp(dir, pattern)
				}
				s.start(1)
				s.say(0, true, sliceSays("a", "192.0.2.2"))
				s.wait(150 * time.Second)
				s.served("with a fault", "192.0.2.2")
				s.stored("with a fault", "192.0.2.1")
				if files, err := os.ReadDir(filepath.Dir(s.path)); err != nil || len(files) != 1 {
					s.Errorf("got the files %v, %v, want the old snapshot alone", files, err)
				}
				if st := s.snapshot.Status(); !errors.Is(st.Err, syscall.ENOSPC) || st.Faults < 100 {
					s.Errorf("got %+v", st)
				}
				mended.Store(true)
				s.wait(2 * time.Second)
				s.stored("afterwards", "192.0.2.2")
				s.wait(time.Hour)
				s.logged(1, "snapshot cannot be written")
				s.logged(2, "snapshot still cannot be written")
				s.logged(1, "snapshot is written again")
				s.end()
			})
		})
	}
}

// faultyFile is a file whose methods fail where they have an error to say.
type faultyFile struct {
	tempFile
	write, sync, close error
}

func brokenFile(dir, pattern string, write, sync, close error) (tempFile, error) {
	file, err := createTemp(dir, pattern)
	return faultyFile{file, write, sync, close}, err
}

func (f faultyFile) Write(p []byte) (int, error) {
	if f.write != nil {
		n, _ := f.tempFile.Write(p[:len(p)/2])
		return n, f.write
	}
	return f.tempFile.Write(p)
}
func (f faultyFile) Sync() error  { return errors.Join(f.sync, f.tempFile.Sync()) }
func (f faultyFile) Close() error { return errors.Join(f.tempFile.Close(), f.close) }

// No folder at all, by the file system's own word.
func TestAPathBelowAFile(t *testing.T) {
	onStage(t, func(s *stage) {
		must(s.T, os.WriteFile(s.path, nil, 0o600))
		s.path = filepath.Join(s.path, "peers")
		s.start(1)
		s.logged(1, `msg="snapshot ignored"`)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.served("without a file", "192.0.2.1")
		s.logged(1, "snapshot cannot be written")
		s.end()
	})
}

func TestTheFileIsOursAlone(t *testing.T) {
	onStage(t, func(s *stage) {
		// What was left by a process that was killed while it wrote goes, what another writes now stays, as does what is not ours.
		dir := filepath.Dir(s.path)
		old, young, other := filepath.Join(dir, ".peers.1.tmp"), filepath.Join(dir, ".peers.2.tmp"), filepath.Join(dir, "peers.1.tmp")
		for _, path := range []string{old, young, other} {
			must(s.T, os.WriteFile(path, nil, 0o600))
		}
		must(s.T, os.Chtimes(old, time.Time{}, time.Now().Add(-2*snapshotStray)))
		must(s.T, os.Chtimes(young, time.Time{}, time.Now()))
		s.start(1)
		s.say(0, true, sliceSays("a", "192.0.2.1"))
		s.end()
		info, err := os.Stat(s.path)
		must(s.T, err)
		if got := info.Mode(); got != 0o600 {
			s.Errorf("mode: got %v, want 0600", got)
		}
		for path, want := range map[string]bool{old: false, young: true, other: true} {
			if _, err := os.Stat(path); (err == nil) != want {
				s.Errorf("%s: is there: %v, want %v", path, err == nil, want)
			}
		}
	})
}
