package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// parseFlags returns what the command line says, or every fault of it.
func parseFlags(args []string, getenv func(string) string) (*Config, *flags, []error) {
	c := &Config{Selector: labels.Everything(), TTL: 5, NegativeTTL: 2, ShutdownDelay: 5 * time.Second, LogFormat: "text"}
	f := &flags{FlagSet: pflag.NewFlagSet("peerdns", pflag.ContinueOnError)}
	f.SortFlags = false
	f.Usage = func() {} // run prints what is asked for, where it belongs
	f.bind(c)

	// pflag stops at the first unknown flag; we name all of them.
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.findUnknown(args)
	if err := f.Parse(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		f.faults = append(f.faults, err)
	}
	for _, arg := range f.Args() {
		f.faults = append(f.faults, fmt.Errorf("%q: peerdns takes flags only, see --help", arg))
	}
	if err := c.complete(getenv); err != nil {
		f.faults = append(f.faults, err)
	}
	return c, f, append(f.faults, c.validate()...)
}

// bind says every flag, its default and its help text.
func (f *flags) bind(c *Config) {
	f.group("Answers")
	bindList(f, &c.Listen, "listen", "ADDRESS", "address and port to answer on, UDP and TCP; :53 is every address of "+
		"the host (repeatable; default :53)", parseListen)
	bindList(f, &c.Zones, "zone", "NAME", "zone to be authoritative for (repeatable; default $CLUSTER_DOMAIN, else "+
		"cluster.local)", parseZone)
	bindList(f, &c.AdvertiseAddress, "advertise-address", "IP", "address of the zone's name server, ns.dns.ZONE "+
		"(repeatable; default $POD_IP, else a concrete --listen address)", parseAdvertised)
	bindOne(f, &c.TTL, "ttl", "DURATION", "TTL of the records, in whole seconds", "5s", parseTTL)
	bindOne(f, &c.NegativeTTL, "negative-ttl", "DURATION", "TTL of negative answers, in whole seconds", "2s", parseTTL)

	f.group("Objects")
	bindList(f, &c.Manifests, "manifests", "PATH", "read objects from this YAML or JSON file or folder and follow it, "+
		"instead of the API (repeatable)", parseText)
	bindOne(f, &c.Kubeconfig, "kubeconfig", "FILE", "how to reach the API (default: the service account of our pod)",
		"", parseText)
	bindOne(f, &c.Context, "context", "NAME", "context of the kubeconfig (default: its current one)", "", parseText)
	bindList(f, &c.Namespaces, "namespace", "NAME", "namespace to read (repeatable; default: that of the service account "+
		"or of the kubeconfig's context, else \"default\"; with --manifests all)", parseNamespace)
	f.flag(&c.AllNamespaces, "all-namespaces", "read all namespaces")
	bindOne(f, &c.Selector, "selector", "LABELS", "label selector on the objects that are read (default: everything)",
		"", parseSelector)

	f.group("The process")
	bindOne(f, &c.ShutdownDelay, "shutdown-delay", "DURATION", "how long to answer on after SIGTERM", "5s", parseDelay)
	bindOne(f, &c.LogLevel, "log-level", "LEVEL", "debug, info, warn or error", "info", parseLevel)
	bindOne(f, &c.LogFormat, "log-format", "FORMAT", "text or json", "text", parseFormat)
	f.flag(&c.PrintZone, "print-zone", "print the zone as a master file from what the source holds now, and exit")
	f.flag(&c.Version, "version", "print the version, and exit")
	f.BoolVarP(&c.Help, "help", "h", false, "print this help, and exit")
	f.names = append(f.names, "help")
}

// flags is a FlagSet that goes on after a bad value, so that the user sees every fault at once.
type flags struct {
	*pflag.FlagSet
	faults []error
	names  []string // in the order of the help, group titles among them as "= Title"
}

func (f *flags) group(title string) { f.names = append(f.names, "= "+title) }

func (f *flags) flag(dst *bool, name, usage string) {
	f.BoolVar(dst, name, false, usage)
	f.names = append(f.names, name)
}

// help returns the help text, in 80 columns.
func (f *flags) help() string {
	var text strings.Builder
	text.WriteString("peerdns tells clustered programs on Kubernetes who their peers are, by DNS.\n\nUsage: peerdns [flags]\n")
	for _, name := range f.names {
		if title, ok := strings.CutPrefix(name, "= "); ok {
			fmt.Fprintf(&text, "\n%s:\n", title)
			continue
		}
		flag := f.Lookup(name)
		head := "  --" + name
		if flag.Value.Type() != "bool" {
			head += " " + flag.Value.Type()
		}
		usage := flag.Usage
		if flag.DefValue != "" && flag.DefValue != "false" {
			usage += " (default " + flag.DefValue + ")"
		}
		const column = 30
		text.WriteString(head + strings.Repeat(" ", max(2, column-len(head))))
		width := max(column, len(head)+2)
		for word := range strings.FieldsSeq(usage) {
			if width+len(word) > 80 {
				text.WriteString("\n" + strings.Repeat(" ", column))
				width = column
			}
			text.WriteString(word + " ")
			width += len(word) + 1
		}
		text.WriteString("\n")
	}
	return strings.ReplaceAll(text.String(), " \n", "\n")
}

// flagValue is a pflag.Value. Set keeps the fault for later.
type flagValue struct {
	f              *flags
	name, kind     string
	text           string
	parseAndAssign func(string) error
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.kind }

func (v *flagValue) Set(text string) error {
	v.text = text
	if err := v.parseAndAssign(text); err != nil {
		v.f.faults = append(v.f.faults, fmt.Errorf("--%s: %w", v.name, err))
	}
	return nil
}

func bindOne[T any](f *flags, dst *T, name, kind, usage, byDefault string, parse func(string) (T, error)) {
	f.Var(&flagValue{f, name, kind, byDefault, func(text string) error {
		value, err := parse(text)
		if err == nil {
			*dst = value
		}
		return err
	}}, name, usage)
	f.names = append(f.names, name)
}

func bindList[T any](f *flags, dst *[]T, name, kind, usage string, parse func(string) (T, error)) {
	f.Var(&flagValue{f, name, kind, "", func(text string) error {
		value, err := parse(text)
		if err == nil {
			*dst = append(*dst, value)
		}
		return err
	}}, name, usage)
	f.names = append(f.names, name)
}

// findUnknown keeps a fault for each argument that looks like a flag and is none.
func (f *flags) findUnknown(args []string) {
	for i, arg := range args {
		if i > 0 && f.takesNext(args[i-1]) {
			continue // a value
		}
		name, isLong := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		switch {
		case arg == "--":
			return
		case isLong && f.Lookup(name) == nil:
			f.faults = append(f.faults, fmt.Errorf("--%s: no such flag, see --help", name))
		case !isLong && len(arg) > 1 && arg[0] == '-' && arg != "-h":
			f.faults = append(f.faults, fmt.Errorf("%s: no such flag, see --help", arg))
		}
	}
}

// takesNext tells whether the argument is a flag whose value is the next argument.
func (f *flags) takesNext(arg string) bool {
	name, isLong := strings.CutPrefix(arg, "--")
	flag := f.Lookup(name)
	return isLong && flag != nil && flag.NoOptDefVal == ""
}

func parseText(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

func parseListen(text string) (netip.AddrPort, error) {
	if port, ok := strings.CutPrefix(text, ":"); ok {
		if addrPort, err := netip.ParseAddrPort("0.0.0.0:" + port); err == nil {
			return netip.AddrPortFrom(netip.Addr{}, addrPort.Port()), nil
		}
	}
	addrPort, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an IP address and a port: want 192.0.2.1:53, [2001:db8::1]:53 or :53", text)
	}
	return addrPort, nil
}

func formatListen(a netip.AddrPort) string {
	if !a.Addr().IsValid() {
		return fmt.Sprintf(":%d", a.Port())
	}
	return a.String()
}

func parseZone(text string) (zone.Name, error) {
	name, err := zone.ParseName(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a domain name: want labels of 1 to 63 characters as in cluster.local", text)
	}
	if name == zone.Root {
		return "", fmt.Errorf("%q is the root of all names: want a zone below it, as cluster.local", text)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name.String(), "."), ".") {
		if len(validation.IsDNS1123Label(label)) > 0 {
			return "", fmt.Errorf("%q has the label %q: want letters, digits and inner hyphens", text, label)
		}
	}
	if _, err := zone.NewStore(zone.Config{Zones: []zone.Name{name}}); err != nil {
		return "", fmt.Errorf("%q is too long: %w", text, err)
	}
	return name, nil
}

func parseAdvertised(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address: want 192.0.2.1 or 2001:db8::1", text)
	}
	if addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%q is no address of one host: want one at which clients reach this server", text)
	}
	return addr.Unmap(), nil
}

func parseNamespace(text string) (string, error) {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return "", fmt.Errorf("%q is not a namespace: want a DNS-1123 label, lower-case letters, digits and inner hyphens, "+
			"at most 63", text)
	}
	return text, nil
}

func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector: %w: want for instance app=web,tier!=cache", text, err)
	}
	return selector, nil
}

// maxTTL is the largest TTL there is (RFC 2181 §8).
const maxTTL = (1<<31 - 1) * time.Second

func parseTTL(text string) (uint32, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Second != 0 || d < 0 || d > maxTTL {
		return 0, fmt.Errorf("%q is not a TTL: want whole seconds from 0s to %.0fs, as 5s or 1m", text, maxTTL.Seconds())
	}
	return uint32(d / time.Second), nil
}

func parseDelay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: want 0s or more, as 5s or 1m30s", text)
	}
	return d, nil
}

func parseLevel(text string) (slog.Level, error) {
	levels := []string{"debug", "info", "warn", "error"}
	i := slices.Index(levels, text)
	if i < 0 {
		return 0, fmt.Errorf("%q is not a log level: want %s", text, strings.Join(levels, ", "))
	}
	return slog.LevelDebug + slog.Level(4*i), nil
}

func parseFormat(text string) (string, error) {
	if text != "text" && text != "json" {
		return "", fmt.Errorf("%q is not a log format: want text or json", text)
	}
	return text, nil
}
