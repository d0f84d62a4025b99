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

// Run follows the sources until the context ends. Nothing is applied before each has sent a complete batch.
func (w *Watcher) Run(ctx context.Context) {
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
	g := gather{zones: w.zones, log: w.log, pending: map[string]zone.Change{}, synced: w.synced, moves: newMoves()}
	g.run(ctx, batches)
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
}

func (g *gather) run(ctx context.Context, batches <-chan sourceBatch) {
	for !g.complete() {
		select {
		case <-ctx.Done():
			return
		case b := <-batches:
			g.take(b)
		}
	}
	g.log.Info("zones synced", "objects", len(g.pending))
	for {
		g.drain(batches)
		g.publish(time.Now())
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
		changes = append(changes, g.moves.hold(was, c, now))
	}
	news.end()
	clear(g.pending)
	g.zones.Apply(changes...)
}
