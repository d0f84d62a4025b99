package watcher

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// Slices are told apart from other objects by the start of zone.Change.Object.
const slicePrefix = "endpointslice/"

func sliceObject(s *discoveryv1.EndpointSlice) string {
	return slicePrefix + s.Namespace + "/" + s.Name
}

// sliceChange returns what an EndpointSlice says: a peer for each endpoint that is ready and not terminating.
func sliceChange(s *discoveryv1.EndpointSlice) zone.Change {
	m := membership{change: zone.Change{Object: sliceObject(s)}}
	ports := slicePorts(s.Ports)
	service := s.Labels[discoveryv1.LabelServiceName]
	for i := range s.Endpoints {
		endpoint := &s.Endpoints[i]
		peer := zone.Peer{
			Namespace: s.Namespace, Service: service, Hostname: value(endpoint.Hostname), Ports: ports,
		}
		if ref := endpoint.TargetRef; ref != nil && ref.Kind == "Pod" {
			peer.Pod = ref.Name
		}
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			m.exclude(peer, zone.FQDN)
			continue
		}
		peer = m.addresses(peer, endpoint.Addresses)
		switch {
		case len(peer.Addrs) == 0:
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

func slicePorts(ports []discoveryv1.EndpointPort) []zone.Port {
	out := make([]zone.Port, 0, len(ports))
	for _, p := range ports {
		// Without a number the slice speaks of every port: there is none to name.
		if number := value(p.Port); 0 < number && number < 1<<16 {
			out = append(out, port(value(p.Name), value(p.Protocol), number))
		}
	}
	return out
}

// port returns a port in the zone's form. A name that is no label is no name: the port is there all the same.
func port(name string, protocol corev1.Protocol, number int32) zone.Port {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	name = strings.ToLower(name)
	if len(validation.IsDNS1123Label(name)) > 0 {
		name = ""
	}
	return zone.Port{Name: name, Protocol: strings.ToLower(string(protocol)), Number: uint16(number)}
}

// membership gathers the peers and the exclusions of one object. Nothing is left out without a reason.
type membership struct {
	change zone.Change
}

func (m *membership) exclude(peer zone.Peer, reason zone.Reason) {
	m.change.Excluded = append(m.change.Excluded, zone.Exclusion{Peer: peer, Reason: reason})
}

// add takes a peer with as many of its names as are legal: losing a peer is worse than losing a name.
func (m *membership) add(peer zone.Peer) {
	if len(validation.IsDNS1123Label(peer.Namespace)) > 0 {
		m.exclude(peer, zone.BadName)
		return
	}
	switch {
	case peer.Service == "":
		m.exclude(peer, zone.NoService)
	case len(validation.IsDNS1123Label(peer.Service)) > 0:
		m.exclude(peer, zone.BadName)
		peer.Service = ""
	case peer.Hostname != "" && len(validation.IsDNS1123Label(peer.Hostname)) > 0:
		m.exclude(peer, zone.BadName)
		peer.Hostname = ""
	}
	m.change.Peers = append(m.change.Peers, peer)
}

// addresses returns the peer with those of the addresses that may be served. One that may not is excluded alone.
func (m *membership) addresses(peer zone.Peer, addresses []string) zone.Peer {
	peer.Addrs = make([]netip.Addr, 0, len(addresses))
	for _, text := range addresses {
		addr, err := netip.ParseAddr(text)
		addr = addr.Unmap()
		switch {
		case err != nil || addr.Zone() != "":
			bad := peer
			bad.Addrs = nil
			m.exclude(bad, zone.ForbiddenAddress)
		case forbidden(addr):
			bad := peer
			bad.Addrs = []netip.Addr{addr}
			m.exclude(bad, zone.ForbiddenAddress)
		default:
			peer.Addrs = append(peer.Addrs, addr)
		}
	}
	return peer
}

// forbidden tells addresses that reach the client itself, or no single host: the API refuses them for endpoints, but
// not in the status of a pod.
func forbidden(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsMulticast()
}

// value returns what a pointer of the API points at, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// objectKey returns namespace and name for messages.
func objectKey(m metav1.Object) string { return m.GetNamespace() + "/" + m.GetName() }
