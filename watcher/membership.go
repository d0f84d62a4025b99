package watcher

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// Rules say which objects make peers, and under which names. They are values, and their methods pure functions. The
// zero value names no pod's service but by its subdomain, and pins nothing.
type Rules struct {
	Set string // name of the peer set, which keeps its objects apart from those of other sets; "" for the only one

	Service      string // of every pod; "": as ServiceLabel says
	ServiceLabel string // label of a pod whose value is its service; "" or not there: spec.subdomain

	Ports            []zone.Port    // that every peer has, besides its own
	EndpointPodNames bool           // a peer without a hostname has its pod's name as endpoint label
	Pinned           []netip.Prefix // where addresses must be; none: anywhere

	HostnameAnnotation string // annotation of a pod with the JSONPath of its host; "": no such
	NodenameAnnotation string // annotation of a pod with the JSONPath of its base name; "": no such
}

// Objects are told apart by the start of zone.Change.Object: slices share endpoints, others do not.
const (
	slicePrefix     = "endpointslice/"
	podPrefix       = "pod/"
	endpointsPrefix = "endpoints/"
)

// object returns the zone's name of an object.
func (r Rules) object(prefix, namespace, name string) string {
	if r.Set != "" {
		name += "@" + r.Set
	}
	return prefix + namespace + "/" + name
}

// objectOf returns the zone's name of an object of a kind, by its namespace/name.
func (r Rules) objectOf(kind Kind, key string) string {
	prefix := map[Kind]string{EndpointSlices: slicePrefix, Pods: podPrefix, Endpoints: endpointsPrefix}[kind]
	namespace, name, _ := strings.Cut(key, "/")
	return r.object(prefix, namespace, name)
}

// change returns what an object says.
func (r Rules) change(o runtime.Object) zone.Change {
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		return r.slice(o)
	case *corev1.Pod:
		return r.pod(o)
	case *corev1.Endpoints:
		return r.endpoints(o)
	}
	panic(fmt.Sprintf("watcher: no rules for a %T", o))
}

// slice: a peer for each endpoint that is ready and not terminating.
func (r Rules) slice(s *discoveryv1.EndpointSlice) zone.Change {
	m := r.membership(slicePrefix, s.Namespace, s.Name)
	ports := r.withPorts(slicePorts(s.Ports))
	for i := range s.Endpoints {
		endpoint := &s.Endpoints[i]
		peer := zone.Peer{
			Namespace: s.Namespace, Service: s.Labels[discoveryv1.LabelServiceName], Ports: ports,
			Pod: podName(endpoint.TargetRef),
		}
		peer.Hostname = r.hostname(value(endpoint.Hostname), peer.Pod)
		if len(endpoint.Addresses) == 0 {
			m.exclude(peer, zone.NoIP)
			continue
		}
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			m.exclude(peer, zone.FQDN)
			continue
		}
		if peer = m.addresses(peer, endpoint.Addresses); len(peer.Addrs) == 0 {
			continue
		}
		switch {
		case value(endpoint.Conditions.Terminating):
			m.exclude(peer, zone.Terminating)
		case endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready:
			m.exclude(peer, zone.NotReady)
		default:
			m.add(peer)
		}
	}
	return m.change
}

// endpoints: a peer for each address that is ready.
func (r Rules) endpoints(e *corev1.Endpoints) zone.Change {
	m := r.membership(endpointsPrefix, e.Namespace, e.Name)
	for i := range e.Subsets {
		subset := &e.Subsets[i]
		ports := r.withPorts(endpointsPorts(subset.Ports))
		peerOf := func(a *corev1.EndpointAddress) zone.Peer {
			peer := zone.Peer{Namespace: e.Namespace, Service: e.Name, Ports: ports, Pod: podName(a.TargetRef)}
			peer.Hostname = r.hostname(a.Hostname, peer.Pod)
			return m.addresses(peer, []string{a.IP})
		}
		for j := range subset.Addresses {
			if peer := peerOf(&subset.Addresses[j]); len(peer.Addrs) > 0 {
				m.add(peer)
			}
		}
		for j := range subset.NotReadyAddresses {
			if peer := peerOf(&subset.NotReadyAddresses[j]); len(peer.Addrs) > 0 {
				m.exclude(peer, zone.NotReady)
			}
		}
	}
	return m.change
}

// pod: a peer if it has an address and is neither deleted nor finished, ready or not.
func (r Rules) pod(p *corev1.Pod) zone.Change {
	m := r.membership(podPrefix, p.Namespace, p.Name)
	peer := zone.Peer{
		Namespace: p.Namespace, Service: r.serviceOf(p), Hostname: r.hostname(p.Spec.Hostname, p.Name), Pod: p.Name,
		Ports: r.withPorts(podPorts(&p.Spec)),
	}
	var texts []string
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	if len(texts) == 0 && p.Status.PodIP != "" {
		texts = []string{p.Status.PodIP}
	}
	reason := zone.Reason("")
	switch {
	case p.DeletionTimestamp != nil:
		reason = zone.Terminating
	case p.Status.Phase == corev1.PodSucceeded:
		reason = zone.Succeeded
	case p.Status.Phase == corev1.PodFailed:
		reason = zone.Failed
	case len(texts) == 0:
		reason = zone.NoIP
	}
	if reason != "" {
		// What the addresses are is said for the sake of who asks for them; whether they are legal is no matter now.
		peer.Addrs = legalAddresses(texts)
		m.exclude(peer, reason)
		return m.change
	}
	if peer = m.addresses(peer, texts); len(peer.Addrs) > 0 {
		m.add(m.nodeNamed(peer, p))
	}
	return m.change
}

func (r Rules) serviceOf(p *corev1.Pod) string {
	switch label := p.Labels[r.ServiceLabel]; {
	case r.Service != "":
		return r.Service
	case r.ServiceLabel != "" && label != "":
		return label
	}
	return p.Spec.Subdomain
}

// hostname returns the endpoint label of a peer; "" is its address.
func (r Rules) hostname(own, pod string) string {
	if own == "" && r.EndpointPodNames {
		return pod
	}
	return own
}

func podName(ref *corev1.ObjectReference) string {
	if ref == nil || ref.Kind != "Pod" || len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
		return ""
	}
	return ref.Name
}

func slicePorts(ports []discoveryv1.EndpointPort) []zone.Port {
	var out []zone.Port
	for _, p := range ports {
		// Without a number the slice speaks of every port: there is none to name.
		out = appendPort(out, value(p.Name), value(p.Protocol), value(p.Port))
	}
	return out
}

func endpointsPorts(ports []corev1.EndpointPort) []zone.Port {
	var out []zone.Port
	for _, p := range ports {
		out = appendPort(out, p.Name, p.Protocol, p.Port)
	}
	return out
}

// podPorts returns the named ports of the containers, and of the init containers that go on beside them.
func podPorts(spec *corev1.PodSpec) []zone.Port {
	var out []zone.Port
	take := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.Name != "" {
				out = appendPort(out, p.Name, p.Protocol, p.ContainerPort)
			}
		}
	}
	for i := range spec.Containers {
		take(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; value(c.RestartPolicy) == corev1.ContainerRestartPolicyAlways {
			take(c)
		}
	}
	return out
}

// appendPort adds a port in the zone's form, if it has a number. A name that is no label, or is of a protocol that the API
// does not have, is no name: the port is there
// all the same.
func appendPort(ports []zone.Port, name string, protocol corev1.Protocol, number int32) []zone.Port {
	if number <= 0 || number >= 1<<16 {
		return ports
	}
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	switch protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default: // of which there is no name
		name, protocol = "", corev1.ProtocolTCP
	}
	if name = strings.ToLower(name); !isLabel(name) {
		name = ""
	}
	return append(ports, zone.Port{Name: name, Protocol: strings.ToLower(string(protocol)), Number: uint16(number)})
}

// withPorts returns the ports and those that every peer has.
func (r Rules) withPorts(ports []zone.Port) []zone.Port {
	for _, p := range r.Ports {
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return slices.Clip(ports)
}

// membership gathers the peers and the exclusions of one object. Nothing is left out without a reason.
type membership struct {
	Rules
	change zone.Change
}

func (r Rules) membership(prefix, namespace, name string) *membership {
	return &membership{Rules: r, change: zone.Change{Object: r.object(prefix, namespace, name)}}
}

func (m *membership) exclude(peer zone.Peer, reason zone.Reason) {
	m.change.Excluded = append(m.change.Excluded, zone.Exclusion{Peer: peer, Reason: reason})
}

// add takes a peer with as many of its names as are legal: losing a peer is worse than losing a name.
func (m *membership) add(peer zone.Peer) {
	if !isLabel(peer.Namespace) {
		m.exclude(peer, zone.BadName)
		return
	}
	switch {
	case peer.Service == "":
		m.exclude(peer, zone.NoService)
	case !isLabel(peer.Service):
		m.exclude(peer, zone.BadName)
		peer.Service = ""
	case peer.Hostname != "" && !isLabel(peer.Hostname):
		m.exclude(peer, zone.BadName)
		peer.Hostname = ""
	}
	m.change.Peers = append(m.change.Peers, peer)
}

// addresses returns the peer with those of the addresses that may be served. One that may not is excluded alone.
func (m *membership) addresses(peer zone.Peer, texts []string) zone.Peer {
	peer.Addrs = make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		addr = addr.Unmap()
		reason := zone.Reason("")
		switch {
		case err != nil || addr.Zone() != "" || forbidden(addr):
			reason = zone.ForbiddenAddress
		case !m.pinned(addr):
			reason = zone.NotPinned
		}
		switch {
		case reason == "" && !slices.Contains(peer.Addrs, addr):
			peer.Addrs = append(peer.Addrs, addr)
		case reason != "":
			bad := peer
			bad.Addrs = legalAddresses([]string{text})
			m.exclude(bad, reason)
		}
	}
	return peer
}

func (m *membership) pinned(addr netip.Addr) bool {
	return len(m.Pinned) == 0 || slices.ContainsFunc(m.Pinned, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// forbidden tells addresses that reach the client itself, or no single host: the API refuses them for endpoints, but
// not in the status of a pod.
func forbidden(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsMulticast() ||
		addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// legalAddresses returns those texts that are addresses at all.
func legalAddresses(texts []string) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, addr.WithZone("").Unmap())
		}
	}
	return addrs
}

func isLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// value returns what a pointer of the API points at, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
