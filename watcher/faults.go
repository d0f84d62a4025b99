package watcher

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// faultInterval is how often a fault that lasts is logged again.
const faultInterval = time.Minute

// faults logs the faults of one source: once when they begin, once a minute while they last, once when they end.
type faults struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	since  time.Time  // zero when there is no fault
	logged time.Time
	count  int
}

func newFaults(log *slog.Logger) *faults { return &faults{log: log} }

// note takes the result of one attempt. What fails because the context ended is no fault.
func (f *faults) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && f.since.IsZero():
	case err == nil:
		f.log.Info("source recovered", "duration", now.Sub(f.since).Round(time.Millisecond), "attempts", f.count)
		f.since, f.count = time.Time{}, 0
	case f.since.IsZero():
		f.since, f.logged, f.count = now, now, 1
		f.log.Warn("source unavailable, the last known peers stay", "err", err)
	default:
		f.count++
		if now.Sub(f.logged) >= faultInterval {
			f.logged = now
			f.log.Warn("source still unavailable, the last known peers stay", "err", err,
				"duration", now.Sub(f.since).Round(time.Second), "attempts", f.count)
		}
	}
}
