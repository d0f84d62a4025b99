package watcher

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerdns/zone"
)

// checkChange asserts that the peers of an object are legal, and that peers and exclusions account for every endpoint.
func checkChange(t *testing.T, o manifestObject) {
	t.Helper()
	c := sliceChange(o.slice)
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
	addresses := 0
	for _, e := range o.slice.Endpoints {
		addresses += len(e.Addresses)
	}
	accounted := 0
	for _, p := range c.Peers {
		accounted += len(p.Addrs)
	}
	for _, e := range c.Excluded {
		accounted += max(1, len(e.Addrs))
	}
	if o.slice.AddressType != discoveryv1.AddressTypeFQDN && accounted < addresses {
		t.Errorf("%d addresses, but peers and exclusions account for %d", addresses, accounted)
	}
	// The zone must take whatever comes.
	store := newStore(t)
	store.Apply(c)
	_ = masterText(t, store.View())
}

func TestPortNamesAreLabels(t *testing.T) {
	for name, want := range map[string]string{"HTTP": "http", "http_x": "", "-": "", "": "", "a.b": ""} {
		if got := port(name, "", 1); got != (zone.Port{Name: want, Protocol: "tcp", Number: 1}) {
			t.Errorf("port %q: got %+v, want name %q and tcp", name, got, want)
		}
	}
}

func TestOneChangeForEachSlice(t *testing.T) {
	objects, err := decodeManifests("f.yaml", []byte(goodSlice+"---\n"+goodSlice))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, o := range objects {
		names = append(names, sliceChange(o.slice).Object)
	}
	if want := []string{"endpointslice/shop/a", "endpointslice/shop/a"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}
