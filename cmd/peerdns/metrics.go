package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"peerdns/resolver"
	"peerdns/watcher"
	"peerdns/zone"
)

// newRegistry returns the metrics of the process.
func newRegistry(store *zone.Store, watched *watcher.Watcher, snapshot *watcher.Snapshot,
	server *resolver.Server,
) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "peerdns_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": versionText()},
	})
	buildInfo.Set(1)
	registry.MustRegister(buildInfo, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		zoneCollector{store}, sourceCollector{watched}, snapshotCollector{watched, snapshot}, serverCollector{server})
	return registry
}

// zoneCollector reads the newest view when it is asked: what changes costs nothing until somebody looks.
type zoneCollector struct{ store *zone.Store }

var (
	zoneSerial = prometheus.NewDesc("peerdns_zone_serial", "Serial number of the zone's SOA.", []string{"zone"}, nil)
	objects    = prometheus.NewDesc("peerdns_objects", "Objects that make peers or exclusions.", nil, nil)
	peers      = prometheus.NewDesc("peerdns_peers", "Peers over all objects.", nil, nil)
	excluded   = prometheus.NewDesc("peerdns_excluded_peers", "Peers that are known but left out, or that lack a name, by reason.",
		[]string{"reason"}, nil)
	warnings = prometheus.NewDesc("peerdns_object_warnings", "Faults of objects that leave no peer out, as in a node name.", nil, nil)
)

// Describe sends every description.
func (zoneCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range [...]*prometheus.Desc{zoneSerial, objects, peers, excluded, warnings} {
		out <- desc
	}
}

// Collect sends what the view holds now.
func (c zoneCollector) Collect(out chan<- prometheus.Metric) {
	view := c.store.View()
	for _, apex := range view.Zones() {
		out <- gauge(zoneSerial, float64(view.Serial(apex)), apex.String())
	}
	counts := view.Counts()
	out <- gauge(objects, float64(counts.Objects))
	out <- gauge(peers, float64(counts.Peers))
	out <- gauge(warnings, float64(counts.Warnings))
	byReason := view.ExcludedByReason()
	for _, reason := range zone.Reasons {
		out <- gauge(excluded, float64(byReason[reason]), string(reason))
	}
}

// sourceCollector reads how the sources are doing when it is asked.
type sourceCollector struct{ watched *watcher.Watcher }

var (
	sourceSynced = prometheus.NewDesc("peerdns_source_synced", "1 after the source's first complete list, else 0.", []string{"source"}, nil)
	sourceUp     = prometheus.NewDesc("peerdns_source_up", "1 if the last attempt to read the source was successful, else 0.",
		[]string{"source"}, nil)
	sourceContact = prometheus.NewDesc("peerdns_source_last_contact_timestamp_seconds",
		"When an attempt to read the source was last successful, 0 for never.", []string{"source"}, nil)
	sourcePanics = prometheus.NewDesc("peerdns_source_unread_objects_total",
		"Objects that peerdns failed to read for a fault of its own, and left as they were.", []string{"source"}, nil)
	sourceDiffered = prometheus.NewDesc("peerdns_source_missed_changes_total",
		"Objects that a check (--verify-interval) found to differ from what the watch had told.", []string{"source"}, nil)
	sourceFiles = prometheus.NewDesc("peerdns_source_files_valid",
		"1 if the files with what the API and we know each other by (CA or trusted peers, token, certificate) are good, else 0: what "+
			"they said before is in use.", []string{"source"}, nil)
	sourceErrors = prometheus.NewDesc("peerdns_source_errors_total", "Attempts to read the source that failed.", []string{"source"}, nil)
)

// Describe sends every description.
func (sourceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range [...]*prometheus.Desc{
		sourceSynced, sourceUp, sourceContact, sourceFiles, sourceErrors, sourcePanics, sourceDiffered,
	} {
		out <- desc
	}
}

// Collect sends the status of every source.
func (c sourceCollector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.watched.Status() {
		contact := 0.0
		if !s.Contact.IsZero() {
			contact = float64(s.Contact.UnixMilli()) / 1000
		}
		out <- gauge(sourceSynced, truth(s.Synced), s.Source)
		out <- gauge(sourceUp, truth(s.Err == nil), s.Source)
		out <- gauge(sourceContact, contact, s.Source)
		out <- gauge(sourceFiles, truth(s.Files == nil), s.Source)
		for desc, count := range map[*prometheus.Desc]int{sourceErrors: s.Faults, sourcePanics: s.Panics, sourceDiffered: s.Differed} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(count), s.Source)
		}
	}
}

// snapshotCollector reads how the snapshot is doing when it is asked.
type snapshotCollector struct {
	watched  *watcher.Watcher
	snapshot *watcher.Snapshot // nil: off
}

var (
	stale       = prometheus.NewDesc("peerdns_stale", "1 while the zones hold what a snapshot said, else 0.", nil, nil)
	snapshotAge = prometheus.NewDesc("peerdns_snapshot_age_seconds",
		"Time since the sources last said what the snapshot file holds. Absent without such a file.", nil, nil)
	snapshotFailures = prometheus.NewDesc("peerdns_snapshot_write_failures_total", "Attempts to write the snapshot that failed.", nil, nil)
)

// Describe sends every description.
func (snapshotCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range [...]*prometheus.Desc{stale, snapshotAge, snapshotFailures} {
		out <- desc
	}
}

// Collect sends the status of the snapshot.
func (c snapshotCollector) Collect(out chan<- prometheus.Metric) {
	_, isStale := c.watched.Stale()
	out <- gauge(stale, truth(isStale))
	if c.snapshot == nil {
		return
	}
	status := c.snapshot.Status()
	out <- prometheus.MustNewConstMetric(snapshotFailures, prometheus.CounterValue, float64(status.Faults))
	if !status.Known.IsZero() {
		out <- gauge(snapshotAge, max(0, time.Since(status.Known).Seconds()))
	}
}

// serverCollector reads what the server has counted.
type serverCollector struct{ server *resolver.Server }

var truncated = prometheus.NewDesc("peerdns_dns_truncated_responses_total",
	"Replies with TC. Over TCP and TLS those are the ones that exceed 65,535 octets.", []string{"proto"}, nil)

// Describe sends the description.
func (serverCollector) Describe(out chan<- *prometheus.Desc) { out <- truncated }

// Collect sends the counts.
func (c serverCollector) Collect(out chan<- prometheus.Metric) {
	for proto, n := range c.server.Truncated() {
		out <- prometheus.MustNewConstMetric(truncated, prometheus.CounterValue, float64(n), proto)
	}
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
