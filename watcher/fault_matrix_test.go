package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"peerdns/zone"
)

// podAt is a running pod of service web.
func podAt(name, ip string) *corev1.Pod {
	p := podOf(name, corev1.PodRunning)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.Status.PodIP = ip
	return p
}

// followAPI runs a watcher over the pods of namespace shop until the test ends.
func followAPI(t *testing.T, api *fakeAPI, opts APIOptions, change func(Rules, runtime.Object) zone.Change) (*zone.Store, *Watcher, *lockedBuffer) {
	t.Helper()
	log := newLog()
	logger := slog.New(slog.NewTextHandler(log, nil))
	sources := APISources(api.client, []PeerSet{{Kind: Pods, Namespaces: []string{"shop"}, Selector: labels.Everything()}}, opts, logger)
	if change != nil {
		sources[0].(*apiSource).change = change
	}
	store := newStore(t)
	w := New(sources, store, logger)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return store, w, log
}

type apiFault func(http.ResponseWriter, *http.Request) bool

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func status(code int, reason metav1.StatusReason) apiFault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, code, reason, "as the test wants it")
		return true
	}
}

func body(contentType, text string) apiFault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text)) // who asked may have gone
		return true
	}
}

// reset ends the connection with RST, after some octets or none.
func reset(text string) apiFault {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if text != "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
			w.(http.Flusher).Flush()
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		return true
	}
}

// without streaming lists a fault meets lists too.
func noStream(next apiFault) apiFault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
			return true
		}
		return next(w, r)
	}
}

// goneFromTheWatch makes a watch start over: its version is too old.
func goneFromTheWatch(next apiFault) apiFault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if isWatch(r) && r.URL.Query().Get("sendInitialEvents") == "" {
			fail(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
			return true
		}
		return next(w, r)
	}
}

// Whatever the API does, peers stay until it says otherwise: the fault matrix of docs/reliability.md. The fake API server has the faults that a
// real one cannot be made to have.
func TestNoFaultOfTheAPITakesAPeer(t *testing.T) {
	const someList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`
	onlyOf := func(watching bool, fault apiFault) apiFault {
		return func(w http.ResponseWriter, r *http.Request) bool { return isWatch(r) == watching && fault(w, r) }
	}
	for name, fault := range map[string]apiFault{
		"401":                               status(401, metav1.StatusReasonUnauthorized),
		"403":                               status(403, metav1.StatusReasonForbidden),
		"404":                               status(404, metav1.StatusReasonNotFound),
		"410":                               status(410, metav1.StatusReasonExpired),
		"429":                               status(429, metav1.StatusReasonTooManyRequests),
		"500":                               status(500, metav1.StatusReasonInternalError),
		"503":                               status(503, metav1.StatusReasonServiceUnavailable),
		"504":                               status(504, metav1.StatusReasonTimeout),
		"reset before a reply":              reset(""),
		"reset in the middle of a list":     noStream(goneFromTheWatch(reset(someList + `{"metadata":{"name":"a",`))),
		"a list cut short":                  noStream(goneFromTheWatch(body("application/json", someList+`{"metadata":{"name":"x","namespace":"shop"}},{`))),
		"a list that is no JSON":            noStream(goneFromTheWatch(body("application/json", "<html>"))),
		"a page of a proxy":                 noStream(goneFromTheWatch(body("text/html", "<html>Sign in</html>"))),
		"an empty object for a list":        noStream(goneFromTheWatch(body("application/json", "{}"))),
		"nothing for a list":                noStream(goneFromTheWatch(body("application/json", ""))),
		"another kind of list":              noStream(goneFromTheWatch(body("application/json", `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`))),
		"success for a list":                noStream(goneFromTheWatch(body("application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`))),
		"protobuf that is none":             noStream(goneFromTheWatch(body("application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff"))),
		"an expired token after a page":     noStream(goneFromTheWatch(expiredToken)),
		"a watch that ends at once":         onlyOf(true, body("application/json", "")),
		"a watch with garbage":              onlyOf(true, body("application/json", "garbage\n")),
		"a watch with an object of no kind": onlyOf(true, body("application/json", `{"type":"ADDED","object":{"x":1}}`+"\n")),
		"a watch with an error":             onlyOf(true, body("application/json", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500,"status":"Failure","message":"fake"}}`+"\n")),
		"a streaming list that stops half":  onlyOf(true, body("application/json", `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"shop","resourceVersion":"3"}}}`+"\n")),
		"a watch that is reset":             onlyOf(true, reset(`{"type":"BOOKMARK",`)),
		"a redirect to somewhere else":      body301,
		"a list without a version":          noStream(goneFromTheWatch(body("application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.put(podAt("a", "192.0.2.1"))
			api.put(podAt("b", "192.0.2.2"))
			store, w, _ := followAPI(t, api, APIOptions{}, nil)
			awaitAddresses(t, store, "192.0.2.1 192.0.2.2", "NXDOMAIN", "192.0.2.1", "192.0.2.2")
			never, stop := watchAnswers(t, store, "192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.3")

			api.breakWith(fault)
			// What happens meanwhile is seen afterwards.
			api.remove("a")
			api.put(podAt("c", "192.0.2.3"))
			await(t, "two faults", func() bool { return w.Status()[0].Faults >= 2 })
			if got := addresses(t, store.View()); got != "192.0.2.1 192.0.2.2" {
				t.Errorf("while it lasts: got %s", got)
			}
			if s := w.Status()[0]; s.Err == nil || s.Since.IsZero() || !s.Synced {
				t.Errorf("status: got %+v, want a fault", s)
			}
			api.breakWith(nil)
			awaitAddresses(t, store, "192.0.2.2 192.0.2.3")
			await(t, "recovery", func() bool { return w.Status()[0].Err == nil })
			stop()
			for _, got := range never() {
				t.Errorf("answered on the way: %s", got)
			}
		})
	}
}

// expiredToken gives the first page of a list, and says of the next, and of a whole list then, that it is too late.
func expiredToken(w http.ResponseWriter, r *http.Request) bool {
	if isWatch(r) {
		return false
	}
	if r.URL.Query().Get("continue") == "" && r.URL.Query().Get("limit") != "" {
		return false
	}
	fail(w, http.StatusGone, metav1.StatusReasonExpired, "the provided continue parameter is too old")
	return true
}

func body301(w http.ResponseWriter, r *http.Request) bool {
	http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusMovedPermanently)
	return true
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline, again := time.After(timeLimit), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("no %s", what)
		}
	}
}

// watchAnswers looks at every view until it is stopped, and then tells the answers that are not among the allowed.
func watchAnswers(t *testing.T, store *zone.Store, allowed ...string) (wrong func() []string, stop func()) {
	t.Helper()
	stopped, done := make(chan struct{}), make(chan struct{})
	var bad []string
	go func() {
		defer close(done)
		for {
			view, changed := store.Watch()
			got := addresses(t, view)
			// Two events are two views: what stands between is true too.
			if got != "192.0.2.2" && got != "192.0.2.1 192.0.2.2 192.0.2.3" && !strings.Contains(strings.Join(allowed, "|"), got) {
				bad = append(bad, got)
			}
			select {
			case <-changed:
			case <-stopped:
				return
			}
		}
	}()
	return func() []string { <-done; return bad }, sync.OnceFunc(func() { close(stopped) })
}

// A complete list that is empty does empty the zone; a token that expires in the middle of a list does not.
func TestACompleteEmptyListEmptiesTheSet(t *testing.T) {
	api := newFakeAPI(t)
	api.put(podAt("a", "192.0.2.1"))
	store, _, _ := followAPI(t, api, APIOptions{}, nil)
	awaitAddresses(t, store, "192.0.2.1")
	api.breakWith(status(503, metav1.StatusReasonServiceUnavailable))
	api.remove("a")
	api.breakWith(goneFromTheWatch(func(http.ResponseWriter, *http.Request) bool { return false }))
	awaitAddresses(t, store, "NXDOMAIN")
}

// A watch goes on where it was, without a list, after a connection was lost.
func TestAWatchGoesOnWhereItWas(t *testing.T) {
	api := newFakeAPI(t)
	api.put(podAt("a", "192.0.2.1"))
	store, _, _ := followAPI(t, api, APIOptions{}, nil)
	awaitAddresses(t, store, "192.0.2.1")
	api.put(podAt("b", "192.0.2.2"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2")
	api.breakWith(reset(""))
	api.put(podAt("c", "192.0.2.3"))
	api.breakWith(nil)
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2 192.0.2.3")
	lists := 0
	for _, request := range api.asked() {
		if strings.Contains(request, "sendInitialEvents") || !strings.Contains(request, "watch") {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("got %d lists, want the first alone:\n%s", lists, strings.Join(api.asked(), "\n"))
	}
}

func TestFirstListFromTheCache(t *testing.T) {
	for cached, want := range map[bool]string{false: "resourceVersionMatch=NotOlderThan&sendInitialEvents", true: "resourceVersion=0&"} {
		api := newFakeAPI(t)
		store, _, _ := followAPI(t, api, APIOptions{CachedList: cached}, nil)
		awaitAddresses(t, store, "NXDOMAIN")
		if got := api.asked()[0]; !strings.Contains(got, want) || strings.Contains(got, "resourceVersion=0&") != cached {
			t.Errorf("cached %t: asked %s", cached, got)
		}
	}
}

// A change of which no watch is told is found by a check, and counted.
func TestACheckFindsWhatTheWatchHasMissed(t *testing.T) {
	api := newFakeAPI(t)
	for i := range 3 {
		api.put(podAt(fmt.Sprint("p", i), fmt.Sprint("192.0.2.", i+1)))
	}
	store, w, log := followAPI(t, api, APIOptions{VerifyInterval: 20 * time.Millisecond}, nil)
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2 192.0.2.3")
	api.forget("p1")
	awaitAddresses(t, store, "192.0.2.1 192.0.2.3")
	log.await(t, "the watch had missed changes, they are made up for")
	if got := w.Status()[0].Differed; got != 1 {
		t.Errorf("got %d objects that differed, want 1", got)
	}
}

// A panic over one object leaves that object as it was, and all others go on.
func TestAPanicIsContainedToItsObject(t *testing.T) {
	api := newFakeAPI(t)
	api.put(podAt("a", "192.0.2.1"))
	api.put(podAt("b", "192.0.2.2"))
	store, w, log := followAPI(t, api, APIOptions{}, func(r Rules, o runtime.Object) zone.Change {
		if o.(*corev1.Pod).Status.PodIP == "192.0.2.66" {
			panic("as the test wants it")
		}
		return r.change(o)
	})
	awaitAddresses(t, store, "192.0.2.1 192.0.2.2")
	api.put(podAt("a", "192.0.2.66"))
	api.put(podAt("b", "192.0.2.3"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.3")
	log.await(t, "object=shop/a")
	api.breakWith(goneFromTheWatch(func(http.ResponseWriter, *http.Request) bool { return false })) // a list has it too
	api.breakWith(nil)
	api.put(podAt("c", "192.0.2.4"))
	awaitAddresses(t, store, "192.0.2.1 192.0.2.3 192.0.2.4", "192.0.2.3 192.0.2.4")
	if got := w.Status()[0].Panics; got < 1 {
		t.Errorf("got %d panics", got)
	}
	api.remove("a")
	awaitAddresses(t, store, "192.0.2.3 192.0.2.4")
}
