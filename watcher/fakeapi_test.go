package watcher

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fakeAPI is no API server, and says so by its name: it has pods, lists them in pages of one, watches them from any
// version and streams lists, and has every fault that a test puts into it. What a real one does, the real one shows.
type fakeAPI struct {
	client *kubernetes.Clientset

	mu       sync.Mutex // guards what follows
	version  int
	pods     map[string]*corev1.Pod
	history  []fakeEvent
	changed  chan struct{} // closed, and replaced, after a change of anything here
	fault    func(w http.ResponseWriter, r *http.Request) (handled bool)
	cuts     int // how often all watches were cut
	requests []string
}

type fakeEvent struct {
	Type   string      `json:"type"`
	Object *corev1.Pod `json:"object"`
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{version: 1, pods: map[string]*corev1.Pod{}, changed: make(chan struct{})}
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		f.cut()
		server.CloseClientConnections()
		server.Close()
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	must(t, err)
	f.client = client
	return f
}

// do changes something and wakes who waits for it.
func (f *fakeAPI) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAPI) put(pod *corev1.Pod) {
	f.do(func() {
		f.version++
		pod.ResourceVersion = strconv.Itoa(f.version)
		kind := "MODIFIED"
		if f.pods[pod.Name] == nil {
			kind = "ADDED"
		}
		f.pods[pod.Name] = pod
		f.history = append(f.history, fakeEvent{kind, pod})
	})
}

func (f *fakeAPI) remove(name string) {
	f.do(func() {
		f.version++
		pod := f.pods[name].DeepCopy()
		pod.ResourceVersion = strconv.Itoa(f.version)
		delete(f.pods, name)
		f.history = append(f.history, fakeEvent{"DELETED", pod})
	})
}

// forget removes a pod, or changes it, of which no watch is told.
func (f *fakeAPI) forget(name string) {
	f.do(func() {
		f.version++
		delete(f.pods, name)
	})
}

// breakWith puts a fault in, nil for none, and cuts all watches.
func (f *fakeAPI) breakWith(fault func(http.ResponseWriter, *http.Request) bool) {
	f.do(func() {
		f.fault = fault
		f.cuts++
	})
}

func (f *fakeAPI) cut() { f.do(func() { f.cuts++ }) }

func (f *fakeAPI) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.URL.RequestURI())
	fault := f.fault
	f.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if r.URL.Query().Get("watch") != "" {
		f.watch(w, r)
		return
	}
	f.list(w, r)
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	list.ResourceVersion = strconv.Itoa(f.version)
	var names []string
	if strings.HasSuffix(r.URL.Path, "/endpoints") {
		list.Kind = "EndpointsList"
	}
	for name, pod := range f.pods {
		if selector.Matches(labels.Set(pod.Labels)) && strings.HasSuffix(r.URL.Path, "/"+pod.Namespace+"/pods") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	from := 0
	if token := r.URL.Query().Get("continue"); token != "" {
		from, _ = slices.BinarySearch(names, token)
	}
	for i, name := range names[from:] {
		if r.URL.Query().Get("limit") != "" && i == 1 {
			list.Continue = name
			break
		}
		list.Items = append(list.Items, *f.pods[name])
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // who asked may have gone
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder, flush := json.NewEncoder(w), w.(http.Flusher)
	f.mu.Lock()
	cuts := f.cuts
	at, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, pod := range f.pods {
			_ = encoder.Encode(fakeEvent{"ADDED", pod})
		}
		at = f.version
		end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(at), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}
		end.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		_ = encoder.Encode(fakeEvent{"BOOKMARK", end})
	}
	f.mu.Unlock()
	flush.Flush()
	for {
		f.mu.Lock()
		changed, isCut := f.changed, f.cuts != cuts
		for _, event := range f.history {
			if version, _ := strconv.Atoi(event.Object.ResourceVersion); !isCut && version > at {
				_ = encoder.Encode(event)
				at = version
			}
		}
		f.mu.Unlock()
		flush.Flush()
		if isCut {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// fail writes the Status object of an error, as the API has it.
func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: fmt.Sprint("fake: ", message),
	})
}
