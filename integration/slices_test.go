package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"peerdns/integration/controlplane"
)

// writeSlice makes an EndpointSlice by hand, or replaces it.
func writeSlice(ctx context.Context, client kubernetes.Interface, name, service string, addresses ...string) error {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "hand"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	api := client.DiscoveryV1().EndpointSlices(namespace)
	_, err := api.Create(ctx, slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(ctx, slice, metav1.UpdateOptions{})
	}
	return err
}

func deleteSlice(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	must(t, client.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// What befalls slices that no controller minds.
func TestSlicesWrittenByHand(t *testing.T) {
	c := startCluster(t)
	admin := c.Admin()
	kubeconfig, gate := c.behindGate(t, c.reader(t, "endpointslices"))
	p := start(t, "--zone=peers.test", "--kubeconfig="+kubeconfig, "--namespace="+namespace)
	p.awaitLog(t, "zones synced")
	const one, other = "one.shop.svc.peers.test.", "other.shop.svc.peers.test."
	a, b := "198.18.0.1", "198.18.0.2"

	t.Run("relabelled", func(t *testing.T) {
		must(t, writeSlice(t.Context(), admin, "hand-1", "one", a))
		p.await(t, []string{a}, one)
		must(t, writeSlice(t.Context(), admin, "hand-1", "other", a))
		p.await(t, []string{a}, other)
		p.await(t, nil, one)
		expect(t, p.dig(t, one), "status: NXDOMAIN")
	})

	t.Run("label removed", func(t *testing.T) {
		_, err := admin.DiscoveryV1().EndpointSlices(namespace).Patch(t.Context(), "hand-1", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+discoveryv1.LabelServiceName+`":null}}}`), metav1.PatchOptions{})
		must(t, err)
		p.await(t, nil, other)
		p.awaitLog(t, `peer excluded.*reason=no-service.*hand-1`)
		p.await(t, []string{a}, "198-18-0-1.shop.pod.peers.test.")
		deleteSlice(t, admin, "hand-1")
		p.await(t, nil, "198-18-0-1.shop.pod.peers.test.")
	})

	t.Run("an endpoint that moves is always there", func(t *testing.T) {
		must(t, writeSlice(t.Context(), admin, "hand-1", "one", a, b))
		must(t, writeSlice(t.Context(), admin, "hand-2", "one"))
		p.await(t, []string{a, b}, one)
		ctx, stop := context.WithCancel(t.Context())
		moves, moved := 0, make(chan error, 1)
		go func() {
			var errs []error
			// The removal comes first: the order that would lose it.
			for ; ctx.Err() == nil && len(errs) == 0; moves++ {
				for _, err := range []error{
					writeSlice(t.Context(), admin, "hand-1", "one", a),
					writeSlice(t.Context(), admin, "hand-2", "one", b),
					writeSlice(t.Context(), admin, "hand-2", "one"),
					writeSlice(t.Context(), admin, "hand-1", "one", a, b),
				} {
					if err != nil {
						errs = append(errs, err)
					}
				}
			}
			moved <- errors.Join(errs...)
		}()
		for i := range 50 {
			if got, want := p.short(t, one), []string{a, b}; !slices.Equal(got, want) {
				t.Errorf("question %d while an endpoint moves: got %v, want %v", i, got, want)
			}
		}
		stop()
		must(t, <-moved)
		t.Logf("%d moves and back under 50 questions", moves)
		// One that goes for good, is gone.
		must(t, writeSlice(t.Context(), admin, "hand-1", "one", a))
		p.await(t, []string{a}, one)
		deleteSlice(t, admin, "hand-1")
		deleteSlice(t, admin, "hand-2")
		p.await(t, nil, one)
	})

	t.Run("deleted while the watch was down", func(t *testing.T) {
		must(t, writeSlice(t.Context(), admin, "hand-1", "one", a))
		must(t, writeSlice(t.Context(), admin, "hand-2", "other", b))
		p.await(t, []string{a}, one)
		p.await(t, []string{b}, other)
		gate.close()
		p.awaitLog(t, "source unavailable, the last known peers stay")
		deleteSlice(t, admin, "hand-1")
		if got := p.short(t, one); !slices.Equal(got, []string{a}) {
			t.Errorf("without the API: got %v, want the last known %s", got, a)
		}
		gate.open()
		p.await(t, nil, one)
		p.await(t, []string{b}, other)
		deleteSlice(t, admin, "hand-2")
		p.await(t, nil, other)
	})
}

// A Service that goes before its slices, and one that goes after them.
func TestServiceAndSlicesGoInEitherOrder(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.reader(t, "endpointslices"), "--namespace="+namespace)
	const web = "web.shop.svc.peers.test."
	runPod(t, admin, "web", 0)

	// Orphaned slices are what the API says, and stay until they go themselves.
	headless(t, admin, "web")
	p.await(t, v4Of("web", 0), web)
	orphan := metav1.DeletePropagationOrphan
	must(t, admin.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	awaitGone(t, func() error {
		_, err := admin.CoreV1().Services(namespace).Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	if got, want := p.short(t, web), v4Of("web", 0); !slices.Equal(got, want) {
		t.Errorf("slices without their Service: got %v, want %v", got, want)
	}
	must(t, admin.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	p.await(t, nil, web)
	expect(t, p.dig(t, web), "status: NXDOMAIN")

	// The controller writes slices anew as long as the Service is there.
	headless(t, admin, "web")
	p.await(t, v4Of("web", 0), web)
	before, err := controlplane.WaitForSlices(ctx, admin, namespace, "web", func(s []*discoveryv1.EndpointSlice) bool { return len(s) == 2 })
	must(t, err)
	for _, slice := range before {
		deleteSlice(t, admin, slice.Name)
	}
	_, err = controlplane.WaitForSlices(ctx, admin, namespace, "web", func(now []*discoveryv1.EndpointSlice) bool {
		return len(now) == 2 && !slices.ContainsFunc(now, func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(before, func(old *discoveryv1.EndpointSlice) bool { return old.UID == s.UID })
		})
	})
	must(t, err)
	p.await(t, v4Of("web", 0), web)
	must(t, admin.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
	p.await(t, nil, web)
	expect(t, p.dig(t, web), "status: NXDOMAIN", fmt.Sprintf(`^peers\.test\.\s+%d\s+IN\s+SOA\s`, 2))
}
