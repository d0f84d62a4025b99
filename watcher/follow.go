package watcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// retry is the back-off after an error of the API. Its cap is short, so that the zone is up to date again within two
// seconds or so of the API's return.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Cap: 2 * time.Second, Steps: 8, Factor: 2, Jitter: 0.5}

// maxRetryAfter bounds what the API server may ask us to wait (RFC 9110 §10.2.3).
const maxRetryAfter = 30 * time.Second

// shortWatch is how long a watch lasts at least if all is well.
const shortWatch = time.Second

// watchTimeout is when the API server is to end a watch, in seconds: apart from each other, so that not all come back
// at once.
func watchTimeout() *int64 {
	seconds := 300 + rand.Int64N(300)
	return &seconds
}

// Run lists and watches until the context ends.
func (s *apiSource) Run(ctx context.Context, out Sink) {
	version := "" // where the watch goes on; "" for a list first
	backoff := retry
	for ctx.Err() == nil {
		var err error
		contact := s.Health().Contact
		version, err = s.follow(ctx, version, out)
		s.note(ctx, err)
		if s.Health().Contact.After(contact) {
			backoff = retry
		}
		if err != nil {
			s.pause(ctx, max(backoff.Step(), retryAfter(err)))
		}
	}
}

// retryAfter returns what the API server asks us to wait.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

func (s *apiSource) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// follow lists, unless there is a version to go on from, and takes what one watch says. It returns where to go on.
func (s *apiSource) follow(ctx context.Context, version string, out Sink) (string, error) {
	var w watch.Interface
	if version == "" {
		all, stream, err := s.first(ctx)
		if err != nil {
			return "", err
		}
		s.note(ctx, nil)
		version, w = all.version, stream
		if !out(s.replace(all)) {
			return "", ctx.Err()
		}
	}
	if w == nil {
		var err error
		w, err = s.open(ctx, metav1.ListOptions{
			ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: watchTimeout(),
		})
		if err != nil {
			if !mayGoOn(err) {
				version = ""
			}
			return version, s.explain("watch", err)
		}
		s.note(ctx, nil)
	}
	defer w.Stop()
	return s.take(ctx, w, version, out)
}

// mayGoOn tells whether a watch may go on from the same version after an error: the API server did not answer, or not
// to the point.
func mayGoOn(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false // of an API server that was restored from a backup
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// open begins a watch. The API server sends the head of its reply at once.
func (s *apiSource) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	tooLong := time.AfterFunc(openTimeout, func() { cancel(errNoReply) })
	defer tooLong.Stop()
	o.Watch = true
	w, err := s.request(o).Watch(ctx)
	if err == nil && reflect.TypeOf(w) == emptyWatch {
		err = errConnectionLost
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNoReply) {
		err = cause
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return cancelled{w, func() { cancel(nil) }}, nil
}

// cancelled is a watch whose context ends with it.
type cancelled struct {
	watch.Interface
	cancel func()
}

// Stop ends the watch.
func (c cancelled) Stop() {
	c.Interface.Stop()
	c.cancel()
}

// openTimeout is how long a reply to a watch may take to begin.
const openTimeout = 15 * time.Second

// client-go hides a connection that is cut before the reply: it gives an empty watch without an error.
var (
	emptyWatch        = reflect.TypeOf(watch.NewEmptyWatch())
	errConnectionLost = errors.New("the connection was closed before a reply came")
	errNoReply        = errors.New("no reply within " + openTimeout.String())
)

// take passes on what a watch says until it ends, and returns where the next one goes on.
func (s *apiSource) take(ctx context.Context, w watch.Interface, version string, out Sink) (string, error) {
	var verify <-chan time.Time
	if s.VerifyInterval > 0 {
		ticker := time.NewTicker(s.VerifyInterval)
		defer ticker.Stop()
		verify = ticker.C
	}
	began := time.Now()
	for {
		var event watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case <-verify:
			if !s.verify(ctx, version, out) {
				return version, ctx.Err()
			}
			continue
		case event, ok = <-w.ResultChan():
		}
		switch {
		case !ok && time.Since(began) < shortWatch:
			return version, fmt.Errorf("watch %s: ended at once", s.kind)
		case !ok:
			return version, nil // it goes on: the API server ends every watch after some minutes
		case event.Type == watch.Error:
			return "", s.explain("watch", apierrors.FromObject(event.Object))
		}
		s.note(ctx, nil)
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", s.kind, err)
		}
		version = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		b, err := s.event(event)
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", s.kind, err)
		}
		if len(b.Changes) > 0 && !out(b) {
			return "", ctx.Err()
		}
	}
}

// event returns what an event of one object changes.
func (s *apiSource) event(event watch.Event) (Batch, error) {
	object, err := s.read(event.Object)
	if err != nil {
		return Batch{}, err
	}
	if event.Type == watch.Deleted {
		delete(s.known, object.key)
		return Batch{Changes: s.gone(object.key)}, nil
	}
	s.known[object.key] = object.version
	return Batch{Changes: object.changes}, nil
}

// verify compares what the watch has told with a list made at the same version, and mends what differs. It returns
// false if nobody takes batches any more.
func (s *apiSource) verify(ctx context.Context, version string, out Sink) bool {
	all, err := s.pages(ctx, metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		// The version may be too old already; the next check has a newer one.
		s.log.Debug("not verified", "version", version, "err", err)
		return true
	}
	var wrong []string
	listed := make(map[string]bool, len(all.objects))
	for _, object := range all.objects {
		listed[object.key] = true
		if s.known[object.key] != object.version {
			wrong = append(wrong, object.key)
		}
	}
	for key := range s.known {
		if !listed[key] {
			wrong = append(wrong, key)
		}
	}
	if len(wrong) == 0 {
		return true
	}
	s.differed(wrong)
	return out(s.replace(all))
}
