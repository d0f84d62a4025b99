package watcher

import (
	"context"

	"peerdns/zone"
)

// A Source says what the objects of one kind are, as changes of a zone.
type Source interface {
	// List reads every object once. Its error says what could not be read.
	List(ctx context.Context) ([]zone.Change, error)

	// Run sends batches until the context ends: first one that is complete, then what changes. Its errors are its own to
	// log and to mend.
	Run(ctx context.Context, out Sink)

	// String says what is read, as "endpointslices in namespace shop".
	String() string
}

// Batch is changes that belong together: they are published in one view.
type Batch struct {
	Changes  []zone.Change
	Complete bool // every object of the source has been sent by now
}

// A Sink takes a batch. It returns false when the context of Run has ended and nobody takes batches any more.
type Sink func(Batch) bool
