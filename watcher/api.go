package watcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"peerdns/zone"
)

// retry is the back-off after an error of the API. Its cap is short, so that the zone is up to date again within two
// seconds or so of the API's return.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Cap: 2 * time.Second, Steps: 8, Factor: 2, Jitter: 0.5}

// listTimeout bounds one page of a list; a watch has its own ends.
const listTimeout = time.Minute

// apiSource reads one kind of object from the Kubernetes API, for one peer set or several: a list, then a watch (API
// concepts, "Efficient detection of changes").
type apiSource struct {
	selection
	sets    []Rules
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	files   func() error // what is wrong with the files of the client
	*faults
}

// selection says which objects are read. Peer sets with the same selection share one watch.
type selection struct {
	kind      Kind
	namespace string // "" for all
	selector  string // "" for everything
}

func (s selection) String() string {
	text := string(s.kind) + " in all namespaces"
	if s.namespace != "" {
		text = string(s.kind) + " in namespace " + s.namespace
	}
	if s.selector != "" {
		text += " with " + s.selector
	}
	return text
}

// APISources returns the sources that read what the peer sets want from the API: one for each kind, namespace and
// selector. The API filters by selector.
func APISources(client kubernetes.Interface, sets []PeerSet, log *slog.Logger) []Source {
	var sources []Source
	bySelection := map[selection]*apiSource{}
	for _, set := range sets {
		for _, namespace := range set.Namespaces {
			wanted := selection{kind: set.Kind, namespace: namespace, selector: set.Selector.String()}
			source := bySelection[wanted]
			if source == nil {
				source = newAPISource(client, wanted, log)
				bySelection[wanted] = source
				sources = append(sources, source)
			}
			source.sets = append(source.sets, set.Rules)
		}
	}
	return sources
}

func newAPISource(client kubernetes.Interface, wanted selection, log *slog.Logger) *apiSource {
	s := &apiSource{
		selection: wanted, faults: newFaults(log.With("source", wanted.String())), files: func() error { return nil },
	}
	if c, ok := client.(interface{ FilesFault() error }); ok {
		s.files = c.FilesFault
	}
	switch wanted.kind {
	case Pods:
		resource := client.CoreV1().Pods(wanted.namespace)
		s.example, s.list, s.watch = &corev1.Pod{}, lister(resource.List), resource.Watch
	case Endpoints:
		resource := client.CoreV1().Endpoints(wanted.namespace)
		s.example, s.list, s.watch = &corev1.Endpoints{}, lister(resource.List), resource.Watch
	case EndpointSlices:
		resource := client.DiscoveryV1().EndpointSlices(wanted.namespace)
		s.example, s.list, s.watch = &discoveryv1.EndpointSlice{}, lister(resource.List), resource.Watch
	}
	return s
}

func lister[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// Health says how the source is doing.
func (s *apiSource) Health() Health {
	h := s.faults.Health()
	h.Files = s.files()
	return h
}

// changes returns what an object says in each peer set.
func (s *apiSource) changes(o runtime.Object) []zone.Change {
	changes := make([]zone.Change, 0, len(s.sets))
	for _, rules := range s.sets {
		changes = append(changes, rules.change(o))
	}
	return changes
}

// List reads page after page: all of them, or an error.
func (s *apiSource) List(ctx context.Context) ([]zone.Change, error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return s.listPage(ctx, o)
	})
	var changes []zone.Change
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		changes = append(changes, s.changes(o)...)
		return nil
	})
	return changes, err
}

func (s *apiSource) listPage(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector = s.selector
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return s.list(ctx, o)
}

// Run lists and watches until the context ends.
func (s *apiSource) Run(ctx context.Context, out Sink) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.listPage(ctx, o)
			s.note(ctx, s.hint("list", err))
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = s.selector
			w, err := s.watch(ctx, o)
			if err == nil && reflect.TypeOf(w) == emptyWatch {
				err = errConnectionLost
			}
			s.note(ctx, s.hint("watch", err))
			return w, err
		},
	}
	store := &reflectorStore{out: out, changes: s.changes, known: map[string]bool{}}
	backoff := retry
	reflector := cache.NewReflectorWithOptions(lw, s.example, store, cache.ReflectorOptions{
		Name: s.String(), TypeDescription: string(s.kind), Backoff: &backoff, Clock: clockUntil{ctx: ctx},
	})
	reflector.RunWithContext(ctx)
}

// client-go hides a connection that is cut before the reply: it gives an empty watch without an error.
var (
	emptyWatch        = reflect.TypeOf(watch.NewEmptyWatch())
	errConnectionLost = errors.New("the connection was closed before a reply came")
)

// hint says what was being done.
func (s *apiSource) hint(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, s.kind, err)
}

// clockUntil is a clock whose waiting ends with a context: a reflector in its back-off does not look at its own.
type clockUntil struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that has the time after d or when the context ends.
func (c clockUntil) After(d time.Duration) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case now := <-timer.C:
			done <- now
		case <-c.ctx.Done():
			done <- time.Now()
		}
	}()
	return done
}

// reflectorStore is where a reflector puts what it reads. It keeps no object, only their names.
type reflectorStore struct {
	out     Sink
	changes func(runtime.Object) []zone.Change
	known   map[string]bool // by zone.Change.Object; the reflector's goroutine alone uses it
}

// Add takes an object that is new.
func (s *reflectorStore) Add(o any) error { return s.Update(o) }

// Update takes an object as it is now.
func (s *reflectorStore) Update(o any) error {
	changes := s.changes(o.(runtime.Object))
	for _, c := range changes {
		s.known[c.Object] = true
	}
	s.out(Batch{Changes: changes})
	return nil
}

// Delete takes an object that is gone.
func (s *reflectorStore) Delete(o any) error {
	changes := s.changes(o.(runtime.Object))
	for i, c := range changes {
		delete(s.known, c.Object)
		changes[i] = zone.Change{Object: c.Object}
	}
	s.out(Batch{Changes: changes})
	return nil
}

// Replace takes a complete list: what is not in it is gone.
func (s *reflectorStore) Replace(list []any, _ string) error {
	gone := s.known
	s.known = make(map[string]bool, len(list))
	b := Batch{Complete: true}
	for _, o := range list {
		for _, c := range s.changes(o.(runtime.Object)) {
			s.known[c.Object] = true
			delete(gone, c.Object)
			b.Changes = append(b.Changes, c)
		}
	}
	for name := range gone {
		b.Changes = append(b.Changes, zone.Change{Object: name})
	}
	s.out(b)
	return nil
}

// Resync has nothing to do: nothing is kept that could have drifted.
func (s *reflectorStore) Resync() error { return nil }
