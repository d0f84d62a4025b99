package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"peerdns/zone"
)

// An Applier holds the zones. *zone.Store is one.
type Applier interface {
	View() *zone.View
	Apply(changes ...zone.Change)
}

// Watcher keeps an Applier up to date with sources.
type Watcher struct {
	sources []Source
	zones   Applier
	log     *slog.Logger
	synced  []atomic.Bool // by source

	snapshot *Snapshot // nil: none
}

// Status says how one source is doing.
type Status struct {
	Source string // as "endpointslices in namespace shop"
	Synced bool   // it has sent its first complete batch
	Health
}

// New returns a Watcher; it starts nothing.
func New(sources []Source, zones Applier, log *slog.Logger) *Watcher {
	return &Watcher{sources: sources, zones: zones, log: log, synced: make([]atomic.Bool, len(sources))}
}

// Use makes Run begin with what the snapshot says, and write it from then on. It must come before Run.
func (w *Watcher) Use(s *Snapshot) { w.snapshot = s }

// Stale tells whether the zones hold what a snapshot said, for want of a complete list of every source, and when that was
// last known to be right. Any goroutine may call it.
func (w *Watcher) Stale() (known time.Time, stale bool) { return w.snapshot.Stale() }

// Status returns how each source is doing. Any goroutine may call it.
func (w *Watcher) Status() []Status {
	all := make([]Status, len(w.sources))
	for i, source := range w.sources {
		all[i] = Status{Source: source.String(), Synced: w.synced[i].Load(), Health: source.Health()}
	}
	return all
}

// Once reads every object of the sources once and applies them, or nothing if one cannot be read.
func (w *Watcher) Once(ctx context.Context) error {
	var all []zone.Change
	var errs []error
	for _, source := range w.sources {
		changes, err := source.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", source, err))
		}
		all = append(all, changes...)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.zones.Apply(all...)
	return nil
}

// Run follows the sources until the context ends. Nothing is applied before each has sent a complete batch, but for a
// snapshot: its objects are there at once, each until a source speaks of it or every source is complete.
func (w *Watcher) Run(ctx context.Context) {
	unheard := w.snapshot.apply(w.zones)
	batches := make(chan sourceBatch, 1024) // what comes while a view is made
	var running sync.WaitGroup
	defer running.Wait()
	for i, source := range w.sources {
		running.Go(func() {
			source.Run(ctx, func(b Batch) bool {
				select {
				case batches <- sourceBatch{b, i}:
					return true
				case <-ctx.Done():
					return false
				}
			})
		})
	}
	g := gather{
		zones: w.zones, log: w.log, pending: map[string]zone.Change{}, synced: w.synced, moves: newMoves(),
		snapshot: w.snapshot, unheard: unheard,
	}
	if w.snapshot != nil {
		// It ends after gather, so that the last view is written too.
		stop := make(chan struct{})
		defer close(stop)
		running.Go(func() { w.snapshot.run(stop, w.known) })
	}
	g.run(ctx, batches)
}

// known returns since when what is served may be out of date: now, if no source has a fault.
func (w *Watcher) known() time.Time {
	at := time.Now()
	for _, source := range w.sources {
		if since := source.Health().Since; !since.IsZero() && since.Before(at) {
			at = since
		}
	}
	return at
}

// sourceBatch is a batch and the place of its source.
type sourceBatch struct {
	Batch
	source int
}

// gather collects changes while a view is being made, so that an idle server publishes at once and a busy one in
// batches. It belongs to one goroutine.
type gather struct {
	zones   Applier
	log     *slog.Logger
	pending map[string]zone.Change // by object: a later change replaces the earlier one
	synced  []atomic.Bool          // by source: it has sent a complete batch
	moves   moves

	snapshot *Snapshot       // nil: none
	unheard  map[string]bool // objects of the snapshot of which no source has spoken
}

func (g *gather) run(ctx context.Context, batches <-chan sourceBatch) {
	for !g.complete() {
		select {
		case <-ctx.Done():
			return
		case b := <-batches:
			g.take(b)
		}
		if g.unheard != nil && !g.complete() {
			// One source may be away for long: what the others say is newer than the snapshot.
			g.publish(time.Now())
		}
	}
	g.forget()
	for synced := false; ; {
		g.drain(batches)
		g.publish(time.Now())
		g.snapshot.replaced(g.zones.View())
		if !synced {
			synced = true
			g.log.Info("zones synced", "objects", g.zones.View().Counts().Objects)
		}
		var due <-chan time.Time
		if next, ok := g.moves.next(); ok {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case b := <-batches:
			g.take(b)
		case <-due:
		}
	}
}

func (g *gather) take(b sourceBatch) {
	for _, c := range b.Changes {
		g.pending[c.Object] = c
	}
	if b.Complete {
		g.synced[b.source].Store(true)
	}
}

// forget makes the objects go that only the snapshot knows.
func (g *gather) forget() {
	for name := range g.unheard {
		if _, heard := g.pending[name]; !heard {
			g.pending[name] = zone.Change{Object: name}
		}
	}
}

func (g *gather) complete() bool {
	for i := range g.synced {
		if !g.synced[i].Load() {
			return false
		}
	}
	return true
}

// drain takes what already waits, and does not wait for more.
func (g *gather) drain(batches <-chan sourceBatch) {
	for {
		select {
		case b := <-batches:
			g.take(b)
		default:
			return
		}
	}
}

func (g *gather) publish(now time.Time) {
	before := g.zones.View()
	changes := g.moves.due(now, g.pending)
	news := newNews(g.log)
	for _, c := range g.pending {
		was, _ := before.Object(c.Object)
		news.compare(was, c)
		if g.unheard[c.Object] {
			delete(g.unheard, c.Object) // a complete list says where every endpoint is: none is on the move
		} else {
			c = g.moves.hold(was, c, now)
		}
		changes = append(changes, c)
	}
	news.end()
	clear(g.pending)
	g.zones.Apply(changes...)
}
