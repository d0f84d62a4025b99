package watcher

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	pipe := filepath.Join(dir, "pipe.yaml")
	must(t, syscall.Mkfifo(pipe, 0o600))
	write(t, filepath.Join(dir, "a.yaml"), slice("a", "192.0.2.1"))
	logger := slog.New(slog.NewTextHandler(log, nil))
	if _, err := NewManifests([]string{pipe}, everySlice(), logger); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a pipe: got %v, want a fault", err)
	}
	source, err := NewManifests([]string{dir}, everySlice(), logger)
	must(t, err)
	for range 3 {
		changes, err := source.List(t.Context())
		must(t, err)
		if len(changes) != 1 {
			t.Errorf("got %v, want the object of the file beside the pipe", changes)
		}
	}
	if got := log.text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "passed over: no regular file") {
		t.Errorf("got %q, want one line of the pipe", got)
	}

	// A file that becomes a pipe once we follow it neither blocks us nor takes its objects away.
	file := filepath.Join(t.TempDir(), "b.yaml")
	write(t, file, slice("b", "192.0.2.2"))
	source, err = NewManifests([]string{file}, everySlice(), logger)
	must(t, err)
	_, err = source.List(t.Context())
	must(t, err)
	must(t, os.Remove(file))
	must(t, syscall.Mkfifo(file, 0o600))
	if changes, err := source.List(t.Context()); err == nil || len(changes) != 1 || len(changes[0].Peers) != 1 {
		t.Errorf("got %v, %v; want a fault and the peer that was", changes, err)
	}
}

func TestAFileHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, "")
	must(t, os.Truncate(path, MaxFileSize+1)) // a hole: it takes no space
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "want at most 64 MiB") {
		t.Errorf("got %v, want a fault that names the limit", err)
	}
	must(t, os.Truncate(path, MaxFileSize))
	if _, err := ReadFile(path); err != nil {
		t.Errorf("at the limit: got %v, want its text", err)
	}
}
