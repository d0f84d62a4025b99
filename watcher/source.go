package watcher

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

// Kind is a kind of object that makes peers, by the name of its resource in the API.
type Kind string

// The kinds.
const (
	EndpointSlices Kind = "endpointslices"
	Pods           Kind = "pods"
	Endpoints      Kind = "endpoints"
)

// PeerSet is one configured selection of objects, and the rules by which they make peers.
type PeerSet struct {
	Kind       Kind
	Namespaces []string // "" is all of them
	Selector   labels.Selector
	Rules
}

// selects tells whether the set reads an object of its kind.
func (s PeerSet) selects(o metav1.Object) bool {
	return (slices.Contains(s.Namespaces, "") || slices.Contains(s.Namespaces, o.GetNamespace())) &&
		s.Selector.Matches(labels.Set(o.GetLabels()))
}

// A Source says what objects are there, as changes of a zone.
type Source interface {
	// List reads every object once. Its error says what could not be read.
	List(ctx context.Context) ([]zone.Change, error)

	// Run sends batches until the context ends: first one that is complete, then what changes. Its errors are its own to
	// log and to mend.
	Run(ctx context.Context, out Sink)

	// Health says how it is doing. Any goroutine may call it.
	Health() Health

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
