package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"time"

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

// Selection says which objects are read.
type Selection struct {
	Namespace string // "" for all
	Selector  string // a label selector; "" for all objects
}

func (s Selection) String() string {
	text := "in all namespaces"
	if s.Namespace != "" {
		text = "in namespace " + s.Namespace
	}
	if s.Selector != "" {
		text += " with " + s.Selector
	}
	return text
}

// retry is the back-off after an error of the API. Its cap is short, so that the zone is up to date again within two
// seconds or so of the API's return.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Cap: 2 * time.Second, Steps: 8, Factor: 2, Jitter: 0.5}

// listTimeout bounds one page of a list; a watch has its own ends.
const listTimeout = time.Minute

// apiSource reads one kind of object from the Kubernetes API: a list, then a watch (API concepts, "Efficient detection
// of changes").
type apiSource struct {
	Selection
	resource string
	example  runtime.Object
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	change   func(runtime.Object) zone.Change
	log      *slog.Logger
}

// EndpointSlices returns the source that reads EndpointSlices from the API.
func EndpointSlices(client kubernetes.Interface, selection Selection, log *slog.Logger) Source {
	slices := client.DiscoveryV1().EndpointSlices(selection.Namespace)
	return &apiSource{
		Selection: selection,
		resource:  "endpointslices",
		example:   &discoveryv1.EndpointSlice{},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return slices.List(ctx, o)
		},
		watch:  slices.Watch,
		change: func(o runtime.Object) zone.Change { return sliceChange(o.(*discoveryv1.EndpointSlice)) },
		log:    log,
	}
}

func (s *apiSource) String() string { return s.resource + " " + s.Selection.String() }

// List reads page after page: all of them, or an error.
func (s *apiSource) List(ctx context.Context) ([]zone.Change, error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return s.listPage(ctx, o)
	})
	var changes []zone.Change
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		changes = append(changes, s.change(o))
		return nil
	})
	return changes, err
}

func (s *apiSource) listPage(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector = s.Selector
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return s.list(ctx, o)
}

// Run lists and watches until the context ends.
func (s *apiSource) Run(ctx context.Context, out Sink) {
	faults := newFaults(s.log.With("source", s.String()))
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.listPage(ctx, o)
			faults.note(ctx, s.hint("list", err))
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = s.Selector
			w, err := s.watch(ctx, o)
			faults.note(ctx, s.hint("watch", err))
			return w, err
		},
	}
	store := &reflectorStore{out: out, change: s.change, known: map[string]bool{}}
	backoff := retry
	reflector := cache.NewReflectorWithOptions(lw, s.example, store, cache.ReflectorOptions{
		Name: s.String(), TypeDescription: s.resource, Backoff: &backoff, Clock: clockUntil{ctx: ctx},
	})
	reflector.RunWithContext(ctx)
}

// hint says what was being done.
func (s *apiSource) hint(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, s.resource, err)
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
	out    Sink
	change func(runtime.Object) zone.Change
	known  map[string]bool // by zone.Change.Object; the reflector's goroutine alone uses it
}

// Add takes an object that is new.
func (s *reflectorStore) Add(o any) error { return s.Update(o) }

// Update takes an object as it is now.
func (s *reflectorStore) Update(o any) error {
	c := s.change(o.(runtime.Object))
	s.known[c.Object] = true
	s.out(Batch{Changes: []zone.Change{c}})
	return nil
}

// Delete takes an object that is gone.
func (s *reflectorStore) Delete(o any) error {
	name := s.change(o.(runtime.Object)).Object
	delete(s.known, name)
	s.out(Batch{Changes: []zone.Change{{Object: name}}})
	return nil
}

// Replace takes a complete list: what is not in it is gone.
func (s *reflectorStore) Replace(list []any, _ string) error {
	gone := s.known
	s.known = make(map[string]bool, len(list))
	b := Batch{Changes: make([]zone.Change, 0, len(list)), Complete: true}
	for _, o := range list {
		c := s.change(o.(runtime.Object))
		s.known[c.Object] = true
		delete(gone, c.Object)
		b.Changes = append(b.Changes, c)
	}
	for name := range gone {
		b.Changes = append(b.Changes, zone.Change{Object: name})
	}
	s.out(b)
	return nil
}

// Resync has nothing to do: nothing is kept that could have drifted.
func (s *reflectorStore) Resync() error { return nil }
