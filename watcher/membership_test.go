package watcher

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// checkChange asserts that the peers of an object are legal, and that peers and exclusions account for every endpoint.
func checkChange(t *testing.T, o manifestObject) {
	t.Helper()
	rules := Rules{HostnameAnnotation: "h", NodenameAnnotation: "n", EndpointPodNames: true}
	c := rules.change(o.object)
	for _, p := range c.Peers {
		for what, label := range map[string]string{"namespace": p.Namespace, "service": p.Service, "hostname": p.Hostname} {
			if label != "" && len(validation.IsDNS1123Label(label)) > 0 {
				t.Errorf("%s %q is no label", what, label)
			}
		}
		for _, addr := range p.Addrs {
			if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" || forbidden(addr) {
				t.Errorf("address %v must not be served", addr)
			}
		}
		for _, port := range p.Ports {
			if port.Number == 0 || port.Protocol == "" {
				t.Errorf("illegal port %v", port)
			}
		}
	}
	addresses := addressCount(o)
	accounted := 0
	for _, p := range c.Peers {
		accounted += len(p.Addrs)
	}
	for _, e := range c.Excluded {
		accounted += max(1, len(e.Addrs))
	}
	if accounted < addresses {
		t.Errorf("%d addresses, but peers and exclusions account for %d", addresses, accounted)
	}
	// The zone must take whatever comes.
	store := newStore(t)
	store.Apply(c)
	_ = masterText(t, store.View())
}

// addressCount returns how many different addresses an object has for which something must be said.
func addressCount(o manifestObject) int {
	addresses := map[string]bool{}
	switch o := o.object.(type) {
	case *discoveryv1.EndpointSlice:
		if o.AddressType == discoveryv1.AddressTypeFQDN {
			return 0
		}
		for _, e := range o.Endpoints {
			for _, text := range e.Addresses {
				addresses[canonicalText(text)] = true
			}
		}
	case *corev1.Endpoints:
		for _, s := range o.Subsets {
			for _, a := range slices.Concat(s.Addresses, s.NotReadyAddresses) {
				addresses[canonicalText(a.IP)] = true
			}
		}
	case *corev1.Pod:
		return 1
	}
	return len(addresses)
}

func canonicalText(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String()
	}
	return text
}

func TestPortNamesAreLabels(t *testing.T) {
	for name, want := range map[string]string{"HTTP": "http", "http_x": "", "-": "", "": "", "a.b": ""} {
		got := appendPort(nil, name, "", 1)
		if len(got) != 1 || got[0] != (zone.Port{Name: want, Protocol: "tcp", Number: 1}) {
			t.Errorf("port %q: got %+v, want name %q and tcp", name, got, want)
		}
	}
	for _, number := range []int32{0, -1, 65536} {
		if got := appendPort(nil, "http", "", number); len(got) > 0 {
			t.Errorf("port %d: got %v, want none", number, got)
		}
	}
}

// What is odd in a slice costs a name, or has its reason; nothing goes without a word.
func TestOddEndpointsOfASlice(t *testing.T) {
	odd, icmp := "pod\nname", corev1.Protocol("T C.P")
	name, number := "http", int32(80)
	c := Rules{}.slice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &icmp}},
		Endpoints: []discoveryv1.Endpoint{
			{},
			{Addresses: []string{"255.255.255.255"}},
			{Addresses: []string{"192.0.2.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: odd}},
		},
	})
	if len(c.Peers) != 1 || c.Peers[0].Pod != "" || c.Peers[0].Ports[0].Name != "" || c.Peers[0].Ports[0].Number != 80 {
		t.Errorf("peers: got %+v, want one without the name of its pod and of its port", c.Peers)
	}
	if len(c.Excluded) != 2 || c.Excluded[0].Reason != zone.NoIP || c.Excluded[1].Reason != zone.ForbiddenAddress {
		t.Errorf("exclusions: got %+v, want no-ip and forbidden-address", c.Excluded)
	}
}

func TestAHostWithAZoneIsNone(t *testing.T) {
	if _, err := hostName("fe80::1%any text"); err == nil {
		t.Error("an address with a zone is taken for a host")
	}
}
