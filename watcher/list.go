package watcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"peerdns/zone"
)

const (
	listTimeout   = time.Minute      // of one page of a list
	pageSize      = 500              // objects
	streamTimeout = 30 * time.Second // for the next event of a streaming list
)

// listing is a complete list.
type listing struct {
	objects []seen
	version string // the resourceVersion that the list was made at
}

// List reads every object once.
func (s *apiSource) List(ctx context.Context) ([]zone.Change, error) {
	all, err := s.pages(ctx, metav1.ListOptions{})
	var changes []zone.Change
	for _, object := range all.objects {
		changes = append(changes, object.changes...)
	}
	return changes, s.explain("list", err)
}

// pages reads a list page after page: all of them, or an error.
func (s *apiSource) pages(ctx context.Context, first metav1.ListOptions) (all listing, err error) {
	next := first
	next.Limit = pageSize
	for {
		list, err := s.page(ctx, next)
		if apierrors.IsResourceExpired(err) && next.Continue != "" {
			// It took too long: all of it at once then.
			all, next = listing{}, first
			continue
		}
		if err != nil {
			return listing{}, err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return listing{}, err
		}
		if all.version = m.GetResourceVersion(); all.version == "" {
			// Some answer that only looks like an empty list must not empty the zone.
			return listing{}, fmt.Errorf("the reply is no list: it has no resourceVersion")
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			object, err := s.read(o)
			all.objects = append(all.objects, object)
			return err
		})
		if err != nil {
			return listing{}, err
		}
		if m.GetContinue() == "" {
			return all, nil
		}
		next = metav1.ListOptions{Limit: pageSize, Continue: m.GetContinue()}
	}
}

func (s *apiSource) page(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list := s.newList()
	err := s.request(o).Do(ctx).Into(list)
	return list, err
}

// first reads every object: by a streaming list, whose watch goes on, or page after page, and then there is no watch.
func (s *apiSource) first(ctx context.Context) (all listing, w watch.Interface, err error) {
	version := ""
	if s.CachedList {
		version = "0"
	}
	if !s.noStreams {
		all, w, err = s.stream(ctx, version)
		switch {
		case err == nil:
			return all, w, nil
		case errors.Is(err, errNoBookmark):
			s.log.Warn("streaming list has no end, reading pages instead", "err", err)
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			s.log.Info("the API server has no streaming lists, reading pages instead", "err", err)
			s.noStreams = true
		default:
			return listing{}, nil, s.explain("watch", err)
		}
	}
	all, err = s.pages(ctx, metav1.ListOptions{ResourceVersion: version})
	return all, nil, s.explain("list", err)
}

// errNoBookmark is why a streaming list was given up.
var errNoBookmark = errors.New("no event for " + streamTimeout.String() + ", and not the bookmark of its end")

// stream reads a streaming list: the objects as events, and then a bookmark (API concepts, "Streaming lists").
func (s *apiSource) stream(ctx context.Context, version string) (all listing, w watch.Interface, err error) {
	yes := true
	w, err = s.open(ctx, metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents: &yes, AllowWatchBookmarks: true, TimeoutSeconds: watchTimeout(),
	})
	if err != nil {
		return all, nil, err
	}
	defer func() {
		if err != nil {
			w.Stop()
			w = nil
		}
	}()
	quiet := time.NewTimer(streamTimeout)
	defer quiet.Stop()
	for {
		var event watch.Event
		var ok bool
		select {
		case <-ctx.Done():
			return all, w, ctx.Err()
		case <-quiet.C:
			return all, w, errNoBookmark
		case event, ok = <-w.ResultChan():
			quiet.Reset(streamTimeout)
		}
		switch {
		case !ok:
			return all, w, errors.New("streaming list: the connection was closed before its end")
		case event.Type == watch.Error:
			return all, w, apierrors.FromObject(event.Object)
		case event.Type == watch.Bookmark:
			bookmark, err := meta.Accessor(event.Object)
			if err != nil {
				return all, w, err
			}
			if bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				all.version = bookmark.GetResourceVersion()
				return all, w, nil
			}
		case event.Type == watch.Added:
			object, err := s.read(event.Object)
			if err != nil {
				return all, w, err
			}
			all.objects = append(all.objects, object)
		default:
			return all, w, fmt.Errorf("streaming list: an event %s before its end", event.Type)
		}
	}
}

// replace returns the batch of a complete list: what is not in it is gone.
func (s *apiSource) replace(all listing) Batch {
	gone := maps.Clone(s.known)
	clear(s.known)
	b := Batch{Complete: true}
	for _, object := range all.objects {
		s.known[object.key] = object.version
		delete(gone, object.key)
		b.Changes = append(b.Changes, object.changes...)
	}
	for key := range gone {
		b.Changes = append(b.Changes, s.gone(key)...)
	}
	return b
}
