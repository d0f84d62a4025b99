package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"peerdns/zone"
)

// Config is what peerdns was told to do. The flags of the same names are described in flags.go.
type Config struct {
	Listen           []netip.AddrPort // an invalid address is every address of the host
	Zones            []zone.Name
	AdvertiseAddress []netip.Addr

	Manifests     []string // files and folders; none: the API
	Kubeconfig    string   // "": the service account of our pod
	Context       string
	Namespaces    []string // none: that of the service account or of the kubeconfig's context
	AllNamespaces bool
	Selector      labels.Selector

	TTL           uint32 // seconds
	NegativeTTL   uint32 // seconds
	ShutdownDelay time.Duration

	LogLevel  slog.Level
	LogFormat string // text or json

	PrintZone bool
	Version   bool
	Help      bool
}

// serviceAccountNamespace is where Kubernetes puts the namespace of the pod that we run in.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// complete fills in what depends on the environment and on other settings.
func (c *Config) complete(getenv func(string) string) error {
	if len(c.Listen) == 0 {
		c.Listen = []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, 53)}
	}
	if len(c.Zones) == 0 {
		text := cmp.Or(getenv("CLUSTER_DOMAIN"), "cluster.local")
		name, err := parseZone(text)
		if err != nil {
			return fmt.Errorf("CLUSTER_DOMAIN: %w", err)
		}
		c.Zones = []zone.Name{name}
	}
	if len(c.AdvertiseAddress) == 0 {
		return c.completeAdvertised(getenv("POD_IP"))
	}
	return nil
}

func (c *Config) completeAdvertised(podIP string) error {
	if podIP != "" {
		addr, err := parseAdvertised(podIP)
		if err != nil {
			return fmt.Errorf("POD_IP: %w", err)
		}
		c.AdvertiseAddress = []netip.Addr{addr}
		return nil
	}
	for _, listen := range c.Listen {
		if addr := listen.Addr(); addr.IsValid() && !addr.IsUnspecified() && !slices.Contains(c.AdvertiseAddress, addr) {
			c.AdvertiseAddress = append(c.AdvertiseAddress, addr.WithZone(""))
		}
	}
	return nil
}

// namespaces returns the namespaces to read from the API; "" alone is all of them.
func (c *Config) namespaces(ofKubeconfig string) []string {
	switch {
	case c.AllNamespaces:
		return []string{""}
	case len(c.Namespaces) > 0:
		return c.Namespaces
	case c.Kubeconfig != "":
		return []string{cmp.Or(ofKubeconfig, "default")}
	}
	own, err := os.ReadFile(serviceAccountNamespace)
	if err != nil {
		return []string{"default"}
	}
	return []string{cmp.Or(strings.TrimSpace(string(own)), "default")}
}

// validate returns the faults that lie between settings.
func (c *Config) validate() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.AllNamespaces && len(c.Namespaces) > 0 {
		fault("--all-namespaces: goes not together with --namespace: give one of them")
	}
	if len(c.Manifests) > 0 && c.Kubeconfig != "" {
		fault("--kubeconfig: goes not together with --manifests: objects come from the API or from files")
	}
	if c.Context != "" && c.Kubeconfig == "" {
		fault("--context: %q is a context of no file: give --kubeconfig too", c.Context)
	}
	for i, apex := range c.Zones {
		if slices.Contains(c.Zones[:i], apex) {
			fault("--zone: %s is given twice", apex)
		}
	}
	for i, listen := range c.Listen {
		if listen.Port() != 0 && slices.Contains(c.Listen[:i], listen) {
			fault("--listen: %s is given twice", formatListen(listen))
		}
	}
	return faults
}
