package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// slicesLimit bounds the wait for what controllers write.
const slicesLimit = time.Minute

// WaitForSlices watches the EndpointSlices of a Service until they are as wanted,
// and returns them in the order of their names. It goes on while the API server is
// away. When time is up, the error tells what they are instead. The slices handed
// to wanted must not be changed.
func WaitForSlices(ctx context.Context, client kubernetes.Interface, namespace, service string, wanted func([]*discoveryv1.EndpointSlice) bool) ([]*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, slicesLimit)
	defer cancel()
	selector := labels.Set{discoveryv1.LabelServiceName: service}.String()
	source := cache.NewFilteredListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices", namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	})

	var current []*discoveryv1.EndpointSlice
	// No slices at all is a state like any other, but one of which no event tells.
	noneAtFirst := func(store cache.Store) (bool, error) {
		return len(store.List()) == 0 && wanted(nil), nil
	}
	_, err := watchtools.UntilWithSync(ctx, source, &discoveryv1.EndpointSlice{}, noneAtFirst, func(event watch.Event) (bool, error) {
		slice, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			return false, fmt.Errorf("%s event of a %T", event.Type, event.Object)
		}
		current = slices.DeleteFunc(current, func(old *discoveryv1.EndpointSlice) bool { return old.Name == slice.Name })
		if event.Type != watch.Deleted {
			current = append(current, slice)
		}
		slices.SortFunc(current, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
		return wanted(current), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the slices of service %s/%s: %w; they have %q", namespace, service, err, ReadyAddresses(current))
	}
	return current, nil
}

// WaitForAddresses waits as WaitForSlices does until the ready endpoints of a
// Service have just these addresses, in any order and over any number of slices.
func WaitForAddresses(ctx context.Context, client kubernetes.Interface, namespace, service string, addresses ...string) error {
	want := slices.Sorted(slices.Values(addresses))
	_, err := WaitForSlices(ctx, client, namespace, service, func(current []*discoveryv1.EndpointSlice) bool {
		return slices.Equal(ReadyAddresses(current), want)
	})
	if err != nil {
		return fmt.Errorf("want ready addresses %q: %w", want, err)
	}
	return nil
}

// ReadyAddresses are the addresses of the ready endpoints of slices, sorted, each
// once.
func ReadyAddresses(current []*discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, slice := range current {
		for _, endpoint := range slice.Endpoints {
			// Not said means ready: so the API has it.
			if ready := endpoint.Conditions.Ready; ready == nil || *ready {
				addresses = append(addresses, endpoint.Addresses...)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}
