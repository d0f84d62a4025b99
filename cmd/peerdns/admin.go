package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"peerdns/watcher"
)

// admin is what operators and probes ask, over HTTP: /livez, /readyz, /metrics.
type admin struct {
	listener net.Listener // nil: switched off
	server   *http.Server
	watched  *watcher.Watcher
	ending   atomic.Bool
}

// listenAdmin opens the socket, unless the address is that of none.
func listenAdmin(addr string, watched *watcher.Watcher, metrics prometheus.Gatherer, log *slog.Logger) (*admin, error) {
	a := &admin{watched: watched}
	if addr == adminOff {
		return a, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--admin-listen: %w", err)
	}
	a.listener = listener
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	a.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return a, nil
}

// serve answers until the context ends.
func (a *admin) serve(ctx context.Context) error {
	if a.listener == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	return nil
}

func (a *admin) addr() string {
	if a.listener == nil {
		return adminOff
	}
	return a.listener.Addr().String()
}

// readyz says whether questions should be sent here: not before the first sync, unless there is a snapshot, and not once
// we are ending. A source that fails later changes nothing: its last known peers are better than no answer.
func (a *admin) readyz(w http.ResponseWriter, r *http.Request) {
	var lines []string
	ready := !a.ending.Load()
	if !ready {
		lines = append(lines, "[-] shutdown: answers go on for the shutdown delay only")
	}
	known, stale := a.watched.Stale()
	if stale {
		lines = append(lines, "[+] snapshot: the last known peers are served, of "+known.UTC().Format(time.RFC3339))
	}
	for _, s := range a.watched.Status() {
		switch {
		case !s.Synced && stale:
			lines = append(lines, "[+] "+waitsFor(s))
		case !s.Synced:
			ready = false
			lines = append(lines, "[-] "+waitsFor(s))
		case s.Err != nil:
			lines = append(lines, fmt.Sprintf("[+] %s: synced, the last known peers are served: %v", s.Source, s.Err))
		case s.Files != nil:
			lines = append(lines, fmt.Sprintf("[+] %s: synced, by what was in a file before: %v", s.Source, s.Files))
		default:
			lines = append(lines, fmt.Sprintf("[+] %s: synced", s.Source))
		}
	}
	status, last := http.StatusOK, "ok"
	if !ready {
		status, last = http.StatusServiceUnavailable, "not ready"
	}
	if ready && !r.URL.Query().Has("verbose") {
		lines = nil
	}
	plain(w, status, strings.Join(append(lines, last), "\n"))
}

// waiting says in a few words what the first sync waits for.
func waiting(sources []watcher.Status) string {
	for _, s := range sources {
		if !s.Synced {
			return "waits for " + waitsFor(s)
		}
	}
	return "not synced yet"
}

// outdated says why the zones may be old: only a snapshot is known yet, or a source has failed for longer than that.
func outdated(w *watcher.Watcher, after time.Duration, now time.Time) string {
	if known, stale := w.Stale(); stale {
		return fmt.Sprintf("last known %s ago, %s", now.Sub(known).Round(time.Second), waiting(w.Status()))
	}
	return failingFor(w.Status(), after, now)
}

func failingFor(sources []watcher.Status, after time.Duration, now time.Time) string {
	for _, s := range sources {
		if s.Err != nil && !s.Since.IsZero() && now.Sub(s.Since) >= after {
			return fmt.Sprintf("%s: no contact for %s: %v", s.Source, now.Sub(s.Since).Round(time.Second), s.Err)
		}
	}
	return ""
}

// waitsFor says what a source that is not synced waits for.
func waitsFor(s watcher.Status) string {
	if s.Err == nil {
		return s.Source + ": no complete list yet"
	}
	return fmt.Sprintf("%s: no complete list yet: %v", s.Source, s.Err)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // who asked may have gone
}
