package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faultInterval is how often a fault that lasts is logged again.
const faultInterval = time.Minute

// Health says how a source is doing.
type Health struct {
	Contact  time.Time // of the last successful attempt; zero: none yet
	Since    time.Time // when the fault that lasts began; zero: none lasts
	Err      error     // of the last attempt; nil: it was successful, or there was none
	Faults   int       // failed attempts so far
	Panics   int       // objects that we failed to read, and left as they were
	Differed int       // objects that a check found to differ from what the watch had told
	Files    error     // what is wrong with the files by which the API is reached; what they said before is in use
}

// faults keeps the health of one source and logs its faults: once when they begin, once a minute while they last and when
// the API gives another reason, once when they end.
type faults struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	health Health
	logged time.Time           // the last time that the fault that lasts was logged
	reason metav1.StatusReason // of the fault that was logged
	count  int                 // failed attempts since it began
}

func newFaults(log *slog.Logger) *faults { return &faults{log: log} }

// Health returns the health of the source. Any goroutine may call it.
func (f *faults) Health() Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health
}

// note takes the result of one attempt. What fails because the context ended is no fault.
func (f *faults) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, h := time.Now(), &f.health
	began := h.Since
	h.Err = err
	if err == nil {
		h.Contact, h.Since = now, time.Time{}
		if !began.IsZero() {
			f.log.Info("source recovered", "duration", now.Sub(began).Round(time.Millisecond), "attempts", f.count)
		}
		return
	}
	h.Faults++
	f.count++
	switch {
	case began.IsZero():
		h.Since, f.logged, f.reason, f.count = now, now, apierrors.ReasonForError(err), 1
		f.log.Warn("source unavailable, the last known peers stay", "err", err)
	case now.Sub(f.logged) >= faultInterval || apierrors.ReasonForError(err) != f.reason:
		f.logged, f.reason = now, apierrors.ReasonForError(err)
		f.log.Warn("source still unavailable, the last known peers stay", "err", err,
			"duration", now.Sub(began).Round(time.Second), "attempts", f.count)
	}
}

// panicked counts and logs a panic over one object.
func (f *faults) panicked(key string, p any, stack []byte) {
	f.mu.Lock()
	f.health.Panics++
	f.mu.Unlock()
	f.log.Error("object cannot be read, it stays as it was: this is a fault of peerdns", "object", key, "err", fmt.Sprint(p),
		"stack", string(stack))
}

// differed counts and logs the objects of which a check found something else than the watch had told.
func (f *faults) differed(keys []string) {
	f.mu.Lock()
	f.health.Differed += len(keys)
	f.mu.Unlock()
	f.log.Error("the watch had missed changes, they are made up for", "objects", len(keys), "first", keys[0])
}
