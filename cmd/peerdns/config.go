package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"peerdns/resolver"
	"peerdns/watcher"
	"peerdns/zone"
)

// Config is what peerdns was told to do, by flags and by the file of --config. The settings of the same names are
// described in bind.
type Config struct {
	File string

	Listen           []netip.AddrPort // an invalid address is every address of the host
	ListenTLS        []netip.AddrPort // as Listen
	TLSCertFile      string
	TLSKeyFile       string
	AdminListen      string // address and port of the HTTP server, or adminOff
	Zones            []zone.Name
	Reverse          []netip.Prefix // of whose reverse names we are authoritative; none: the peers' own
	AdvertiseAddress []netip.Addr
	TTL              uint32         // seconds
	NegativeTTL      uint32         // seconds
	MaxUDPSize       int            // octets
	AnswerOrder      string         // answersRotate or answersSorted
	Allow            []netip.Prefix // who may ask; none: everyone
	ServerID         string         // "": none

	Manifests  []string // files and folders; none: the API
	Kubeconfig string   // "": a service account
	Context    string

	KubeAPI             string // URL of the API, with a service account; "": not known
	ServiceAccountPath  string
	TrustedPeerCertFile string // "": what the CA vouches for
	watcher.APIOptions
	SnapshotFile   string // "": none
	SnapshotMaxAge time.Duration

	Sets []*PeerSet // one from the flags and the file's top, or those of the file's list

	StaleAfter    time.Duration
	ShutdownDelay time.Duration
	LogLevel      slog.Level
	LogFormat     string // text or json

	PrintZone bool
	Version   bool
	Help      bool
}

// PeerSet is one selection of objects, and how they become peers.
type PeerSet struct {
	watcher.PeerSet // Namespaces: none is the default, which depends on the source
	AllNamespaces   bool

	origin string // where it stands, for faults
}

func newPeerSet(name, origin string) *PeerSet {
	return &PeerSet{
		PeerSet: watcher.PeerSet{
			Kind: watcher.EndpointSlices, Selector: labels.Everything(), Rules: watcher.Rules{Set: name},
		},
		origin: origin,
	}
}

// parseConfig returns what the command line and the file say, or every fault of both; and the text for --help.
func parseConfig(args []string, getenv func(string) string) (c *Config, help string, faults []error) {
	set := newPeerSet("", "")
	host, _ := os.Hostname() // without one there is no default
	c = &Config{
		Sets:           []*PeerSet{set},
		AdminListen:    ":9153",
		TTL:            5,
		NegativeTTL:    2,
		MaxUDPSize:     resolver.DefaultMaxUDPSize,
		AnswerOrder:    answersRotate,
		ServerID:       host[:min(len(host), resolver.MaxServerID)],
		SnapshotMaxAge: 24 * time.Hour,
		StaleAfter:     time.Minute,
		ShutdownDelay:  5 * time.Second,
		LogFormat:      "text",
	}
	s := &settings{}
	c.bind(s, set)
	faults = s.parseArgs(args)
	if file := s.lookup("config"); len(file.given) > 0 {
		sets, fileFaults := readFile(file.given[0], s)
		faults = append(faults, fileFaults...)
		if len(sets) > 0 {
			faults = append(faults, s.besideSets()...)
			c.Sets = sets
		}
	}
	faults = append(faults, s.read()...)
	faults = append(faults, c.complete(getenv)...)
	return c, s.help(), append(faults, c.validate(s)...)
}

// besideSets returns a fault for each setting of a peer set that is given beside a list of sets.
func (s *settings) besideSets() []error {
	var faults []error
	for _, setting := range s.order {
		if setting.ofSet && len(setting.given) > 0 {
			faults = append(faults, fmt.Errorf("%s: goes not together with %s: put it into a set there", setting.where(), peerSetsKey))
		}
	}
	return faults
}

// bind says every setting, its default and its help text.
func (c *Config) bind(s *settings, set *PeerSet) {
	s.group("Answers")
	many(s, &c.Listen, "listen", "ADDRESS", "address and port to answer on, UDP and TCP; :53 is every address of the host "+
		"(repeatable; default :53)", parseListen)
	many(s, &c.ListenTLS, "listen-tls", "ADDRESS", "address and port to answer on over TLS, as :853 (repeatable; default: none)", parseListen)
	one(s, &c.TLSCertFile, "tls-cert-file", "FILE", "", "certificate chain in PEM form for --listen-tls, followed as it changes", parseText)
	one(s, &c.TLSKeyFile, "tls-key-file", "FILE", "", "private key of the certificate, in PEM form", parseText)
	many(s, &c.Zones, "zone", "NAME", "zone to be authoritative for (repeatable; default $CLUSTER_DOMAIN, else "+
		"cluster.local)", parseZone)
	many(s, &c.Reverse, "reverse", "CIDR", "range whose reverse names we are authoritative for (repeatable; default: PTR of "+
		"known peers only)", parsePrefix)
	many(s, &c.AdvertiseAddress, "advertise-address", "IP", "address of the zone's name server, ns.dns.ZONE (repeatable; "+
		"default $POD_IP, else a concrete --listen address)", parseAdvertised)
	one(s, &c.TTL, "ttl", "DURATION", "5s", "TTL of the records, in whole seconds", parseTTL)
	one(s, &c.NegativeTTL, "negative-ttl", "DURATION", "2s", "TTL of negative answers, in whole seconds", parseTTL)

	one(s, &c.MaxUDPSize, "max-udp-size", "OCTETS", "1232", "size of the largest reply over UDP", parseUDPSize)
	one(s, &c.AnswerOrder, "answer-order", "ORDER", answersRotate, "order of the records of an answer: "+answersRotate+
		", so that each comes first in its turn, or "+answersSorted, parseAnswerOrder)
	many(s, &c.Allow, "allow", "CIDR", "who may ask; others are told REFUSED (repeatable; default: everyone)", parsePrefix)
	one(s, &c.ServerID, "server-id", "TEXT", "", "what tells this server from its replicas: NSID and id.server (default: the "+
		"host's name; empty: nothing)", parseServerID)
	one(s, &c.AdminListen, "admin-listen", "ADDRESS", ":9153", "address and port of /metrics, /livez and /readyz over HTTP, or "+
		adminOff, parseAdminListen)

	s.group("Where objects come from")
	many(s, &c.Manifests, "manifests", "PATH", "read objects from this YAML or JSON file or folder and follow it, instead of "+
		"the API (repeatable)", parseText)
	one(s, &c.Kubeconfig, "kubeconfig", "FILE", "", "how to reach the API (default: the service account of our pod)", parseText)
	one(s, &c.Context, "context", "NAME", "", "context of the kubeconfig (default: its current one)", parseText)
	one(s, &c.KubeAPI, "kube-api", "URL", "", "https URL of the API, with a service account (default: that of the cluster that we "+
		"run in)", parseKubeAPI)
	one(s, &c.ServiceAccountPath, "service-account-path", "FOLDER", "", "token, ca.crt and namespace of a service account, "+
		"followed as they change (default: where a pod has them)", parseText)
	one(s, &c.TrustedPeerCertFile, "trusted-peer-cert-file", "FILE", "", "PEM file with the self-signed certificates that the "+
		"API may have, in place of what its CA signs; followed as it changes", parseText)
	one(s, &c.SnapshotFile, "snapshot-file", "FILE", "", "keep the last known peers in this file, and serve them at a start "+
		"until the source can be read (default: off)", parseText)
	one(s, &c.SnapshotMaxAge, "snapshot-max-age", "DURATION", "24h", "ignore a snapshot that was last known to be right "+
		"longer ago than this", parseAge)

	yes(s, &c.CachedList, "cached-list", "take the first list from the API server's cache: cheaper, and perhaps a little old")
	one(s, &c.VerifyInterval, "verify-interval", "DURATION", "0s", "time between two checks of the watch against a list; 0s for none", parseDelay)

	one(s, &c.StaleAfter, "stale-after", "DURATION", "1m", "how long a source may fail before answers say that they may be old", parseDelay)

	s.group("Which of them are peers, and under which names (one peer set; --config may have several)")
	s.ofSet = true
	set.bind(s)
	s.ofSet = false

	s.group("The process")
	one(s, &c.File, "config", "FILE", "", "YAML file with the flags' names as keys; flags win", parseText).flagOnly = true
	one(s, &c.ShutdownDelay, "shutdown-delay", "DURATION", "5s", "how long to answer on after SIGTERM", parseDelay)
	one(s, &c.LogLevel, "log-level", "LEVEL", "info", "debug, info, warn or error", parseLevel)
	one(s, &c.LogFormat, "log-format", "FORMAT", "text", "text or json", parseFormat)
	yes(s, &c.PrintZone, "print-zone", "print the zone as a master file from what the source holds now, and exit").flagOnly = true
	yes(s, &c.Version, "version", "print the version, and exit").flagOnly = true
	yes(s, &c.Help, "help", "print this help, and exit").flagOnly = true
}

const pinnedKey = "pinned-addresses"

// bind says the settings of a peer set.
func (p *PeerSet) bind(s *settings) {
	one(s, &p.Kind, "source", "KIND", "endpointslices", "kind of object that makes peers: endpointslices, pods or endpoints", parseKind)
	many(s, &p.Namespaces, "namespace", "NAME", "namespace to read (repeatable; default: that of the service account or of "+
		"the kubeconfig's context, else \"default\"; with --manifests all)", parseNamespace)
	yes(s, &p.AllNamespaces, "all-namespaces", "read all namespaces")
	one(s, &p.Selector, "selector", "LABELS", "", "label selector on the objects that are read (default: everything)", parseSelector)
	one(s, &p.Service, "service", "NAME", "", "service of every pod (source pods)", parseService)
	one(s, &p.ServiceLabel, "service-label", "KEY", "", "label of a pod whose value is its service (source pods; default: "+
		"spec.subdomain)", parseKey)
	many(s, &p.Ports, "port", "NAME:NUMBER[/PROTO]", "port that every peer has besides its own, as epmd:4369/tcp (repeatable)", parsePort)
	yes(s, &p.EndpointPodNames, "endpoint-pod-names", "a peer without a hostname is named by its pod, not by its address")
	one(s, &p.HostnameAnnotation, "hostname-annotation", "KEY", "", "annotation of a pod with the JSONPath of its host "+
		"(source pods)", parseKey)
	one(s, &p.NodenameAnnotation, "nodename-annotation", "KEY", "", "annotation of a pod with the JSONPath of its node's "+
		"base name (source pods)", parseKey)
	one(s, &p.Pinned, pinnedKey, "CIDR,...", "", "leave out peers whose address is in none of these ranges", parsePrefixes)
}

// complete fills in what depends on the environment and on other settings.
func (c *Config) complete(getenv func(string) string) []error {
	if len(c.Listen) == 0 {
		c.Listen = []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 53)}
	}
	var faults []error
	if len(c.Zones) == 0 {
		name, err := parseZone(cmp.Or(getenv("CLUSTER_DOMAIN"), "cluster.local"))
		if err != nil {
			faults = append(faults, fmt.Errorf("CLUSTER_DOMAIN: %w", err))
		} else {
			c.Zones = []zone.Name{name}
		}
	}
	if err := c.completeAPI(getenv); err != nil {
		faults = append(faults, err)
	}
	podIP := getenv("POD_IP")
	switch {
	case len(c.AdvertiseAddress) > 0:
	case podIP != "":
		addr, err := parseAdvertised(podIP)
		if err != nil {
			faults = append(faults, fmt.Errorf("POD_IP: %w", err))
		}
		c.AdvertiseAddress = []netip.Addr{addr}
	default:
		for _, listen := range c.Listen {
			if addr := listen.Addr(); addr.IsValid() && !addr.IsUnspecified() {
				c.AdvertiseAddress = append(c.AdvertiseAddress, addr.WithZone("").Unmap())
			}
		}
	}
	return faults
}

// serviceAccountPath is where Kubernetes puts what belongs to the service account of the pod that we run in.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// completeAPI fills in how the API of the cluster that we run in is reached.
func (c *Config) completeAPI(getenv func(string) string) error {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if c.KubeAPI != "" || c.Kubeconfig != "" || len(c.Manifests) > 0 || host == "" || port == "" {
		return nil
	}
	var err error
	if c.KubeAPI, err = parseKubeAPI("https://" + net.JoinHostPort(host, port)); err != nil {
		return fmt.Errorf("KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT: %w", err)
	}
	return nil
}

// watched returns the peer sets as the watcher takes them. The namespace of the kubeconfig's context is a default.
func (c *Config) watched(ofKubeconfig string) []watcher.PeerSet {
	sets := make([]watcher.PeerSet, 0, len(c.Sets))
	for _, set := range c.Sets {
		watched := set.PeerSet
		switch {
		case set.AllNamespaces, len(set.Namespaces) == 0 && len(c.Manifests) > 0:
			watched.Namespaces = []string{""}
		case len(set.Namespaces) == 0:
			watched.Namespaces = []string{c.ownNamespace(ofKubeconfig)}
		}
		sets = append(sets, watched)
	}
	return sets
}

// fingerprint returns what a snapshot must have in common with us: what is read, from where, and the zones that it fills.
// TTLs, reverse ranges and listeners make nothing else of an object.
func (c *Config) fingerprint(sources []watcher.Source) string {
	settings := []string{"kubeconfig=" + c.Kubeconfig, "context=" + c.Context, "kube-api=" + c.KubeAPI}
	for _, apex := range c.Zones {
		settings = append(settings, "zone="+apex.String())
	}
	for _, source := range sources { // they know the namespace that the kubeconfig names
		settings = append(settings, "source="+source.String())
	}
	return watcher.Fingerprint(c.watched(""), settings...)
}

func (c *Config) ownNamespace(ofKubeconfig string) string {
	if c.Kubeconfig != "" {
		return cmp.Or(ofKubeconfig, "default")
	}
	own, err := os.ReadFile(filepath.Join(c.serviceAccount(), "namespace"))
	if err != nil {
		return "default"
	}
	return cmp.Or(strings.TrimSpace(string(own)), "default")
}

func (c *Config) serviceAccount() string { return cmp.Or(c.ServiceAccountPath, serviceAccountPath) }

// hiddenZones returns a line for each zone that lies where another one has its records.
func hiddenZones(zones []zone.Name) []string {
	var lines []string
	for _, outer := range zones {
		for _, tree := range [...]string{"svc", "pod"} {
			above, err := outer.Child(tree)
			for _, inner := range zones {
				if err == nil && inner.In(above) {
					lines = append(lines, fmt.Sprintf("names of %s at and below %s are those of the latter", outer, inner))
				}
			}
		}
	}
	return lines
}

// validate returns the faults that lie between settings.
func (c *Config) validate(s *settings) []error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %w", s.lookup(name).where(), fmt.Errorf(format, args...)))
	}
	for _, of := range [...]struct {
		name, value    string
		withKubeconfig bool
	}{
		{"kubeconfig", c.Kubeconfig, true},
		{"kube-api", c.KubeAPI, false},
		{"service-account-path", c.ServiceAccountPath, false},
		{"trusted-peer-cert-file", c.TrustedPeerCertFile, true},
	} {
		switch {
		case of.value == "":
		case len(c.Manifests) > 0:
			fault(of.name, "goes not together with --manifests: objects come from the API or from files")
		case c.Kubeconfig != "" && !of.withKubeconfig:
			fault(of.name, "goes not together with --kubeconfig, which says it too: give one of them")
		}
	}
	if c.Context != "" && c.Kubeconfig == "" {
		fault("context", "%q is a context of no file: give --kubeconfig too", c.Context)
	}
	for i, apex := range c.Zones {
		if slices.Contains(c.Zones[:i], apex) {
			fault("zone", "%s is given twice", apex)
		}
	}
	for i, listen := range c.Listen {
		if listen.Port() != 0 && slices.Contains(c.Listen[:i], listen) {
			fault("listen", "%s is given twice", formatListen(listen))
		}
	}
	for i, listen := range c.ListenTLS {
		if listen.Port() != 0 && (slices.Contains(c.ListenTLS[:i], listen) || slices.Contains(c.Listen, listen)) {
			fault("listen-tls", "%s is given twice", formatListen(listen))
		}
	}
	for _, file := range [...][2]string{{"tls-cert-file", c.TLSCertFile}, {"tls-key-file", c.TLSKeyFile}} {
		switch needed := len(c.ListenTLS) > 0; {
		case needed && file[1] == "":
			fault(file[0], "is missing: --listen-tls needs a certificate and its key")
		case !needed && file[1] != "":
			fault(file[0], "%q is for TLS only: give --listen-tls too", file[1])
		}
	}
	if c.SnapshotFile == "" && len(s.lookup("snapshot-max-age").given) > 0 {
		fault("snapshot-max-age", "%s is of no file: give --snapshot-file too", c.SnapshotMaxAge)
	}
	for i, set := range c.Sets {
		faults = append(faults, set.validate()...)
		if slices.ContainsFunc(c.Sets[:i], func(other *PeerSet) bool { return other.Set == set.Set }) {
			faults = append(faults, fmt.Errorf("%s: the name %s is given twice", set.origin, set.Set))
		}
	}
	return faults
}

func (p *PeerSet) validate() []error {
	var faults []error
	fault := func(name, format string, args ...any) {
		where := "--" + name
		if p.origin != "" {
			where = p.origin + ": " + name
		}
		faults = append(faults, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
	}
	if p.AllNamespaces && len(p.Namespaces) > 0 {
		fault("all-namespaces", "goes not together with namespace: give one of them")
	}
	slices.Sort(p.Namespaces)
	p.Namespaces = slices.Compact(p.Namespaces)
	if p.Kind != watcher.Pods {
		if p.Service != "" {
			fault("service", "goes with source pods only: to read one Service's %s give a selector or a namespace", p.Kind)
		}
		for _, given := range [...][2]string{
			{"service-label", p.ServiceLabel},
			{"hostname-annotation", p.HostnameAnnotation},
			{"nodename-annotation", p.NodenameAnnotation},
		} {
			if given[1] != "" {
				fault(given[0], "goes with source pods only: %s have no such of a pod", p.Kind)
			}
		}
	}
	return faults
}
