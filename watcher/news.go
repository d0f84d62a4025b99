package watcher

import (
	"log/slog"
	"slices"

	"peerdns/zone"
)

// newsLines is how many lines there are at most for one kind of news in one publishing: the first list of a cluster may
// bring thousands of finished pods.
const newsLines = 10

// news logs what changes in exclusions and warnings when a batch is published: a line when one begins, and one when
// it ends, each with what it is about.
type news struct {
	log   *slog.Logger
	lines map[newsKind]int
}

// The messages.
const (
	begins = "peer excluded"
	ends   = "peer no longer excluded"
	fault  = "object has a fault"
)

type newsKind struct {
	message string
	reason  zone.Reason
}

func newNews(log *slog.Logger) *news { return &news{log: log, lines: map[newsKind]int{}} }

// compare logs the difference between what an object said and what it says.
func (n *news) compare(was, now zone.Change) {
	for _, e := range now.Excluded {
		if !slices.ContainsFunc(was.Excluded, e.SameAs) {
			n.exclusion(newsKind{begins, e.Reason}, now.Object, e)
		}
	}
	for _, e := range was.Excluded {
		if !slices.ContainsFunc(now.Excluded, e.SameAs) {
			n.exclusion(newsKind{ends, e.Reason}, was.Object, e)
		}
	}
	for _, warning := range now.Warnings {
		if !slices.Contains(was.Warnings, warning) && n.count(newsKind{message: fault}) {
			n.log.Warn(fault, "object", now.Object, "fault", warning)
		}
	}
}

func (n *news) exclusion(kind newsKind, object string, e zone.Exclusion) {
	if !n.count(kind) {
		return
	}
	log := n.log.With("reason", string(e.Reason), "object", object, "namespace", e.Namespace,
		"service", e.Service, "pod", e.Pod, "addresses", e.Addrs)
	if kind.message == begins {
		log.Info(begins)
	} else {
		log.Info(ends)
	}
}

// count tells whether there is to be one more line of a kind.
func (n *news) count(kind newsKind) bool {
	n.lines[kind]++
	return n.lines[kind] <= newsLines
}

// end says how much was left out.
func (n *news) end() {
	for kind, lines := range n.lines {
		if lines > newsLines {
			n.log.Info("and more of the same", "news", kind.message, "reason", string(kind.reason), "lines", lines-newsLines)
		}
	}
}
