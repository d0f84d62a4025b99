// Peerdns is a DNS server that tells clustered programs on Kubernetes who their peers are.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"peerdns/resolver"
	"peerdns/watcher"
	"peerdns/zone"
)

// version is set by the linker (see Makefile).
var version = ""

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // peerdns could not do its work
	exitUsage  = 2 // the configuration is at fault
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	os.Exit(run(signals, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit status.
func run(signals <-chan os.Signal, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	config, help, faults := parseConfig(args, getenv)
	switch {
	case config.Help:
		fmt.Fprint(stdout, help)
		return exitOK
	case config.Version:
		fmt.Fprintf(stdout, "peerdns %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return exitOK
	}
	log := newLogger(config, stderr)
	var sources []watcher.Source
	if len(faults) == 0 {
		sources, faults = newSources(config, log)
	}
	if len(faults) > 0 {
		for _, fault := range faults {
			fmt.Fprintln(stderr, fault)
		}
		return exitUsage
	}
	snapshot := openSnapshot(config, sources, log)
	store, err := newStore(config, snapshot.Serials())
	if err != nil {
		fmt.Fprintf(stderr, "--zone, --reverse: %v\n", err)
		return exitUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if config.PrintZone {
		go func() {
			<-signals
			cancel()
		}()
		err = printZone(ctx, watcher.New(sources, store, log), store, stdout)
	} else {
		err = serve(ctx, signals, config, sources, store, snapshot, log)
	}
	if err != nil {
		log.Error("peerdns failed", "err", err)
		return exitFailed
	}
	return exitOK
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newLogger(c *Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if c.LogFormat == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	// What client-go has to say, the watcher says once and in its own words.
	klog.SetSlogLogger(slog.New(debugOnly{handler}).With("component", "client-go"))
	return slog.New(handler)
}

// debugOnly is a slog.Handler that makes every line one of level debug.
type debugOnly struct{ slog.Handler }

func (h debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{h.Handler.WithAttrs(attrs)}
}

func (h debugOnly) WithGroup(name string) slog.Handler {
	return debugOnly{h.Handler.WithGroup(name)}
}

// newSources returns where the objects come from. Its faults are those of configuration.
func newSources(c *Config, log *slog.Logger) ([]watcher.Source, []error) {
	if len(c.Manifests) > 0 {
		source, err := watcher.NewManifests(c.Manifests, c.watched(""), log)
		if err != nil {
			return nil, faultsOf("manifests", err)
		}
		return []watcher.Source{source}, nil
	}
	api := watcher.API{
		Kubeconfig: c.Kubeconfig, Context: c.Context, URL: c.KubeAPI, ServiceAccountPath: c.serviceAccount(),
		TrustedPeerCertFile: c.TrustedPeerCertFile, UserAgent: "peerdns/" + versionText(), Log: log,
	}
	client, namespace, err := api.Client()
	if err != nil {
		return nil, faultsOf("kubeconfig", err)
	}
	return watcher.APISources(client, c.watched(namespace), c.APIOptions, log), nil
}

// openSnapshot reads the last known peers. It returns nil where they are not wanted.
func openSnapshot(c *Config, sources []watcher.Source, log *slog.Logger) *watcher.Snapshot {
	if c.SnapshotFile == "" || c.PrintZone {
		return nil
	}
	return watcher.OpenSnapshot(watcher.SnapshotOptions{
		Path: c.SnapshotFile, MaxAge: c.SnapshotMaxAge, Config: c.fingerprint(sources), Log: log,
	})
}

func newStore(c *Config, continues map[zone.Name]uint32) (*zone.Store, error) {
	return zone.NewStore(zone.Config{
		Zones: c.Zones, Reverse: c.Reverse, TTL: c.TTL, NegativeTTL: c.NegativeTTL,
		NameServer: c.AdvertiseAddress, Serial: uint32(time.Now().Unix()), Continues: continues,
	})
}

// faultsOf returns a line for each error that is joined in err, under the flag's name unless it names another.
func faultsOf(flag string, err error) []error {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for i, err := range errs {
		of := flag
		if named := (*watcher.SettingError)(nil); errors.As(err, &named) {
			of = named.Setting
		}
		errs[i] = fmt.Errorf("--%s: %w", of, err)
	}
	return errs
}

// printZone reads the sources once and writes the zones as master files.
func printZone(ctx context.Context, w *watcher.Watcher, store *zone.Store, out io.Writer) error {
	if err := w.Once(ctx); err != nil {
		return err
	}
	view := store.View()
	for _, apex := range view.Zones() {
		if err := view.WriteMaster(out, apex); err != nil {
			return fmt.Errorf("write zone %s: %w", apex, err)
		}
	}
	return nil
}

// serve answers until a signal ends it. The sockets are bound before the first object is read.
func serve(ctx context.Context, signals <-chan os.Signal, c *Config, sources []watcher.Source, store *zone.Store,
	snapshot *watcher.Snapshot, log *slog.Logger,
) error {
	watched := watcher.New(sources, store, log)
	watched.Use(snapshot)
	server, err := resolver.Listen(resolver.Options{
		Listen: c.Listen, ListenTLS: c.ListenTLS, TLS: resolver.TLSFiles{CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile},
		Allow: c.Allow, MaxUDPSize: c.MaxUDPSize, Sorted: c.AnswerOrder == answersSorted,
		ServerID: c.ServerID, Version: "peerdns " + versionText(),
		NotReady: func() string { return waiting(watched.Status()) },
		Stale:    func() string { return outdated(watched, c.StaleAfter, time.Now()) },
		Log:      log,
	}, store)
	if err != nil {
		return err
	}
	if len(c.AdvertiseAddress) == 0 {
		log.Warn("the zone's name server has no address: give --advertise-address")
	}
	admin, err := listenAdmin(c.AdminListen, watched, newRegistry(store, watched, snapshot, server), log)
	if err != nil {
		return errors.Join(err, server.Serve(ended()))
	}
	for _, hidden := range hiddenZones(c.Zones) {
		log.Warn("a zone hides records of another", "zones", hidden)
	}
	log.Info("serving", "version", versionText(), "addresses", fmt.Sprint(server.Addrs()), "tls", fmt.Sprint(server.TLSAddrs()),
		"admin", admin.addr(),
		"zones", fmt.Sprint(c.Zones))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tasks errgroup.Group
	for _, task := range [...]func(context.Context) error{
		server.Serve,
		admin.serve,
		func(ctx context.Context) error { watched.Run(ctx); return nil },
	} {
		tasks.Go(func() error {
			err := task(ctx)
			if err != nil {
				cancel()
			}
			return err
		})
	}
	if err := awaitEnd(ctx, signals, c.ShutdownDelay, admin, log); err != nil {
		return err
	}
	cancel()
	finished := make(chan error, 1)
	go func() { finished <- tasks.Wait() }()
	select {
	case <-signals:
		return errSecondSignal
	case err := <-finished:
		log.Info("ended")
		return err
	}
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// errSecondSignal is why peerdns ended before its shutdown delay.
var errSecondSignal = errors.New("second signal: ended at once")

// awaitEnd returns when the server is to end: a delay after the first signal, or with the second.
func awaitEnd(ctx context.Context, signals <-chan os.Signal, delay time.Duration, admin *admin, log *slog.Logger) error {
	select {
	case <-ctx.Done():
		return nil
	case sig := <-signals:
		admin.ending.Store(true)
		log.Info("ending: answers go on for the shutdown delay, a second signal ends it at once",
			"signal", sig.String(), "duration", delay)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(delay):
		return nil
	case <-signals:
		return errSecondSignal
	}
}
