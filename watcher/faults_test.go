package watcher

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A fault is logged when it begins, once a minute while it lasts, and when it ends; and its health says so all the time.
func TestFaultsAreLoggedSparsely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		f := newFaults(slog.New(slog.NewTextHandler(log, nil)))
		refused := errors.New("connection refused")
		f.note(t.Context(), nil)
		contact := f.Health().Contact
		if contact.IsZero() {
			t.Error("no contact after success")
		}
		began := time.Now()
		for range 150 {
			f.note(t.Context(), refused)
			time.Sleep(time.Second) // of synthetic time
		}
		if h := f.Health(); !errors.Is(h.Err, refused) || h.Since != began || h.Contact != contact || h.Faults != 150 {
			t.Errorf("while it lasts: got %+v", h)
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
		f.note(t.Context(), forbidden) // the 151st attempt
		f.note(t.Context(), forbidden)
		f.note(t.Context(), nil)
		if h := f.Health(); h.Err != nil || !h.Since.IsZero() || !h.Contact.After(contact) || h.Faults != 152 {
			t.Errorf("after it: got %+v", h)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		f.note(ended, refused)
		if h := f.Health(); h.Err != nil {
			t.Errorf("an end is no fault: got %v", h.Err)
		}
		for text, want := range map[string]int{
			"source unavailable": 1, "source still unavailable": 3, "forbidden": 1, "source recovered": 1, "duration=2m30s attempts=152": 1,
		} {
			if got := strings.Count(log.text.String(), text); got != want {
				t.Errorf("%q: got %d lines, want %d:\n%s", text, got, want, log.text.String())
			}
		}
	})
}

func TestStatusSaysWhichSourceIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := make(chan Batch), make(chan Batch)
		w := New([]Source{scripted{first}, scripted{second}}, newStore(t), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		second <- Batch{Complete: true}
		synctest.Wait()
		if s := w.Status(); s[0].Synced || !s[1].Synced || s[1].Source != "script" {
			t.Errorf("got %+v, want the second of both synced", s)
		}
	})
}
