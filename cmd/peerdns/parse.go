package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/resolver"
	"peerdns/watcher"
	"peerdns/zone"
)

// Each function here reads one value of a setting. Its error says what was given and what would be right.

func parseText(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

func parseKubeAPI(text string) (string, error) {
	if err := watcher.CheckURL(text); err != nil {
		return "", err
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

// adminOff is the value of --admin-listen that opens no socket.
const adminOff = "off"

func parseAdminListen(text string) (string, error) {
	if text == adminOff {
		return adminOff, nil
	}
	addrPort, err := parseListen(text)
	if err != nil {
		return "", fmt.Errorf("%q is neither an IP address and a port nor %s: want :9153, 127.0.0.1:9153 or %s", text, adminOff, adminOff)
	}
	return formatListen(addrPort), nil
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

func parseAge(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not an age: want more than 0s, as 24h or 30m", text)
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

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return text == "true", nil
}

func parseKind(text string) (watcher.Kind, error) {
	kinds := []watcher.Kind{watcher.EndpointSlices, watcher.Pods, watcher.Endpoints}
	if !slices.Contains(kinds, watcher.Kind(text)) {
		return "", fmt.Errorf("%q is not a source: want endpointslices, pods or endpoints", text)
	}
	return watcher.Kind(text), nil
}

func parseService(text string) (string, error) {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return "", fmt.Errorf("%q is not a service: want lower-case letters, digits and inner hyphens, at most 63", text)
	}
	return text, nil
}

func parseSetName(text string) (string, error) {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return "", fmt.Errorf("%q is not a name for a peer set: want lower-case letters, digits and inner hyphens", text)
	}
	return text, nil
}

// parseKey reads the key of a label or an annotation.
func parseKey(text string) (string, error) {
	if len(validation.IsQualifiedName(text)) > 0 {
		return "", fmt.Errorf("%q is not the key of a label or annotation: want for instance app or example.com/app", text)
	}
	return text, nil
}

// portName is a service name of RFC 6335 §5.1; that it has a letter is checked beside it.
var portName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func parsePort(text string) (zone.Port, error) {
	fault := func(what string) (zone.Port, error) {
		return zone.Port{}, fmt.Errorf("%q %s: want name:number or name:number/proto, as epmd:4369/tcp", text, what)
	}
	name, rest, ok := strings.Cut(text, ":")
	if !ok {
		return fault("is not a port")
	}
	number, proto, _ := strings.Cut(rest, "/")
	if !portName.MatchString(name) || len(name) > 15 || !strings.ContainsAny(name, "abcdefghijklmnopqrstuvwxyz") {
		return fault("has no legal name (1 to 15 of a-z, 0-9 and inner hyphens, with a letter)")
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return fault("has no number from 1 to 65535")
	}
	if proto == "" && !strings.Contains(rest, "/") {
		proto = "tcp"
	}
	proto = strings.ToLower(proto)
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, proto) {
		return fault("has no protocol tcp, udp or sctp")
	}
	return zone.Port{Name: name, Protocol: proto, Number: uint16(n)}, nil
}

// parsePrefixes reads CIDRs with commas between them.
func parsePrefixes(text string) ([]netip.Prefix, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("is an empty list, which would leave out every peer: want CIDRs, as 10.244.0.0/16")
	}
	var prefixes []netip.Prefix
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			return nil, fmt.Errorf("%q has a comma too many: want CIDRs with one comma between each two", text)
		}
		prefix, err := parsePrefix(entry)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR: want an address and a length, as 10.244.0.0/16 or 2001:db8::/32", text)
	case prefix.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4-mapped range: want it as IPv4", text)
	case prefix != prefix.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits set after its length: want %s", text, prefix.Masked())
	}
	return prefix, nil
}

func parseUDPSize(text string) (int, error) {
	size, err := strconv.Atoi(text)
	if err != nil || size < dns.MinMsgSize || size > resolver.MaxUDPSize {
		return 0, fmt.Errorf("%q is not a size of a UDP reply: want %d to %d octets", text, dns.MinMsgSize, resolver.MaxUDPSize)
	}
	return size, nil
}

// The values of --answer-order.
const (
	answersRotate = "rotate"
	answersSorted = "sorted"
)

func parseAnswerOrder(text string) (string, error) {
	if text != answersRotate && text != answersSorted {
		return "", fmt.Errorf("%q is not an order of answers: want %s or %s", text, answersRotate, answersSorted)
	}
	return text, nil
}

func parseServerID(text string) (string, error) {
	if len(text) > resolver.MaxServerID {
		return "", fmt.Errorf("%q is too long: want at most %d octets", text, resolver.MaxServerID)
	}
	return text, nil
}
