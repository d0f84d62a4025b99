package watcher

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"peerdns/zone"
)

// apiSource reads one kind of object from the Kubernetes API, for one peer set or several: a list, then a watch (API
// concepts, "Efficient detection of changes"). What it reads is turned into changes at once; it keeps no object.
type apiSource struct {
	selection
	APIOptions
	sets    []Rules
	group   string // of the API
	client  rest.Interface
	newList func() runtime.Object
	change  func(Rules, runtime.Object) zone.Change
	files   func() error // what is wrong with the files of the client
	*faults

	// These belong to whoever runs Run.
	known     map[string]string // resourceVersion by namespace/name, of every object there is
	noStreams bool              // the API server has no streaming lists
}

// APIOptions say how the API is read. The zero value is what most want.
type APIOptions struct {
	// CachedList takes a first list from the API server's cache: cheaper for etcd, and perhaps older than what another
	// replica has seen (resourceVersion=0).
	CachedList bool

	// VerifyInterval is the time between two checks of what the watch has told against a list; 0 for none.
	VerifyInterval time.Duration
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
func APISources(client kubernetes.Interface, sets []PeerSet, opts APIOptions, log *slog.Logger) []Source {
	var sources []Source
	bySelection := map[selection]*apiSource{}
	for _, set := range sets {
		for _, namespace := range set.Namespaces {
			wanted := selection{kind: set.Kind, namespace: namespace, selector: set.Selector.String()}
			source := bySelection[wanted]
			if source == nil {
				source = newAPISource(client, wanted, opts, log)
				bySelection[wanted] = source
				sources = append(sources, source)
			}
			source.sets = append(source.sets, set.Rules)
		}
	}
	return sources
}

func newAPISource(client kubernetes.Interface, wanted selection, opts APIOptions, log *slog.Logger) *apiSource {
	s := &apiSource{
		selection: wanted, APIOptions: opts, change: Rules.change, faults: newFaults(log.With("source", wanted.String())),
		client: client.CoreV1().RESTClient(), known: map[string]string{}, files: func() error { return nil },
	}
	if c, ok := client.(interface{ FilesFault() error }); ok {
		s.files = c.FilesFault
	}
	switch wanted.kind {
	case Pods:
		s.newList = func() runtime.Object { return new(corev1.PodList) }
	case Endpoints:
		s.newList = func() runtime.Object { return new(corev1.EndpointsList) }
	case EndpointSlices:
		s.newList = func() runtime.Object { return new(discoveryv1.EndpointSliceList) }
		s.group, s.client = discoveryv1.GroupName, client.DiscoveryV1().RESTClient()
	}
	return s
}

// request is a list or a watch. It is tried once: when to try again is for us to say, and faults for us to see.
func (s *apiSource) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = s.selector
	return s.client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource(string(s.kind)).
		VersionedParams(&o, scheme.ParameterCodec).MaxRetries(0)
}

// Health says how the source is doing.
func (s *apiSource) Health() Health {
	h := s.faults.Health()
	h.Files = s.files()
	return h
}

// seen is an object, with what it says in each peer set.
type seen struct {
	key     string // namespace/name
	version string // its resourceVersion
	changes []zone.Change
}

// read turns an object into changes. A panic is contained to its object, which stays as it was.
func (s *apiSource) read(o runtime.Object) (r seen, err error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return r, fmt.Errorf("the API sent a %T among %s", o, s.kind)
	}
	r = seen{key: object.GetNamespace() + "/" + object.GetName(), version: object.GetResourceVersion()}
	defer func() {
		if p := recover(); p != nil {
			r.changes = nil
			s.panicked(r.key, p, debug.Stack())
		}
	}()
	for _, rules := range s.sets {
		r.changes = append(r.changes, s.change(rules, o))
	}
	return r, nil
}

// gone returns the changes for an object that is no more.
func (s *apiSource) gone(key string) []zone.Change {
	changes := make([]zone.Change, 0, len(s.sets))
	for _, rules := range s.sets {
		changes = append(changes, zone.Change{Object: rules.objectOf(s.kind, key)})
	}
	return changes
}

// explain says what was being done, and what would help.
func (s *apiSource) explain(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		where := "a Role in namespace " + s.namespace
		if s.namespace == "" {
			where = "a ClusterRole"
		}
		return fmt.Errorf("%s %s: forbidden: needs %s with the rule {apiGroups: [%q], resources: [%s], verbs: [list, watch]}: %w",
			verb, s.kind, where, s.group, s.kind, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: the API does not accept our credentials: %w", verb, s.kind, err)
	}
	return fmt.Errorf("%s %s: %w", verb, s.kind, err)
}
