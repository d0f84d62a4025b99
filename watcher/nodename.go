package watcher

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// nodeNamed returns the peer with the names that the pod's annotations give it: base name and host of its node, and
// the target of its SRV records. What an annotation does not give, the pod's name and its first address do.
func (m *membership) nodeNamed(peer zone.Peer, p *corev1.Pod) zone.Peer {
	base, host := peer.Pod, peer.Addrs[0].String()
	evaluate := evaluator(p)
	if text, ok := m.annotated(p, m.NodenameAnnotation, evaluate); ok {
		if basePattern.MatchString(text) {
			base = text
		} else {
			m.warn(p, m.NodenameAnnotation, fmt.Errorf("%q is no base name of a node: want letters, digits, - and _", text))
		}
	}
	if text, ok := m.annotated(p, m.HostnameAnnotation, evaluate); ok {
		target, err := hostName(text)
		if err != nil {
			m.warn(p, m.HostnameAnnotation, err)
		} else {
			host, peer.Target = strings.TrimSuffix(text, "."), target
		}
	}
	if peer.NodeName = base + "@" + host; len(peer.NodeName) > maxNodeName {
		m.change.Warnings = append(m.change.Warnings, fmt.Sprintf("node name %q is longer than %d octets", peer.NodeName, maxNodeName))
		peer.NodeName = peer.Pod + "@" + peer.Addrs[0].String()
	}
	return peer
}

// basePattern is what Erlang takes before the "@" of a node's name.
var basePattern = regexp.MustCompile(`^[0-9A-Za-z_-]+$`)

// maxNodeName is what fits into one string of a TXT record, and into an atom.
const maxNodeName = 255 // octets

// hostName returns the SRV target that a host stands for: an address is a host too, but none that a record points to.
func hostName(text string) (zone.Name, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return "", fmt.Errorf("%q is an address with a zone, which means something else at each host", text)
		}
		return "", nil
	}
	name := strings.TrimSuffix(strings.ToLower(text), ".")
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return "", fmt.Errorf("%q is no host name: want letters, digits, inner hyphens and dots", text)
	}
	return zone.ParseName(name)
}

// annotated returns the text that an annotation's JSONPath finds in the pod; not ok if there is no annotation, or if
// it does not find just one text, which is a warning.
func (m *membership) annotated(p *corev1.Pod, key string, evaluate func(string) (string, error)) (string, bool) {
	expression, ok := p.Annotations[key]
	if key == "" || !ok {
		return "", false
	}
	text, err := evaluate(expression)
	if err != nil {
		m.warn(p, key, err)
		return "", false
	}
	return text, true
}

func (m *membership) warn(p *corev1.Pod, key string, err error) {
	m.change.Warnings = append(m.change.Warnings, fmt.Sprintf("annotation %s of pod %s/%s: %v", key, p.Namespace, p.Name, err))
}

// evaluator returns a function that evaluates JSONPath expressions (RFC 9535) on the pod as JSON, which is made when it
// is first needed. Its cost is bounded, see path.go.
func evaluator(p *corev1.Pod) func(expression string) (string, error) {
	var document any
	return func(expression string) (string, error) {
		path, err := parsePath(expression)
		if err != nil {
			return "", err
		}
		if document == nil {
			// Managed fields name no node, and alone in a pod they may be as deep as whoever writes them likes.
			bare := *p
			bare.ManagedFields = nil
			text, err := json.Marshal(&bare)
			if err == nil {
				err = json.Unmarshal(text, &document)
			}
			if err != nil {
				return "", fmt.Errorf("write the pod as JSON: %w", err)
			}
		}
		found, err := path.find(document)
		if err != nil {
			return "", fmt.Errorf("%q %w", expression, err)
		}
		if len(found) != 1 {
			return "", fmt.Errorf("%q finds %d values: want one", expression, len(found))
		}
		text, ok := found[0].(string)
		if !ok {
			return "", fmt.Errorf("%q finds %s: want a text", expression, jsonType(found[0]))
		}
		if len(text) > maxNodeName {
			return "", fmt.Errorf("%q finds a text of %d octets: want at most %d", expression, len(text), maxNodeName)
		}
		return text, nil
	}
}

// jsonType returns what a decoded JSON value is, in the words of RFC 8259.
func jsonType(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	}
	return "null"
}
