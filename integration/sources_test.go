package integration

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	watchtools "k8s.io/client-go/tools/watch"

	"peerdns/integration/controlplane"
)

// everySource is one peerdns for each source, each with no more permission than to list and watch what it reads.
type everySource map[string]*peerdns

func startEverySource(t *testing.T, c cluster, podFlags ...string) everySource {
	t.Helper()
	servers := everySource{}
	for source := range groups {
		args := []string{
			"--zone=peers.test", "--source=" + source, "--kubeconfig=" + c.reader(t, source), "--namespace=" + namespace,
		}
		if source == "pods" {
			args = append(args, podFlags...)
		}
		servers[source] = start(t, args...)
		servers[source].awaitLog(t, "zones synced")
	}
	return servers
}

// peers are the numbers of the pods of a service that each source has as peers.
type peers struct{ endpointslices, pods, endpoints []int }

// serves waits until every source serves just these pods, in both families where it knows both: Endpoints have the
// addresses of the Service's first family only.
func (s everySource) serves(t *testing.T, service string, want peers) {
	t.Helper()
	name := service + ".shop.svc.peers.test."
	s["endpointslices"].await(t, v4Of(service, want.endpointslices...), name, "A")
	s["endpointslices"].await(t, v6Of(service, want.endpointslices...), name, "AAAA")
	s["pods"].await(t, v4Of(service, want.pods...), name, "A")
	s["pods"].await(t, v6Of(service, want.pods...), name, "AAAA")
	s["endpoints"].await(t, v4Of(service, want.endpoints...), name, "A")
	s["endpoints"].await(t, nil, name, "AAAA")
}

// excluded waits until the name of a pod is told with this reason by each of the sources.
func (s everySource) excluded(t *testing.T, name, reason string, sources ...string) {
	t.Helper()
	for _, source := range sources {
		s[source].awaitMatch(t, `EDE: 0 \(Other\): \(pod shop/\S+ excluded: `+reason+`\)`, name, "A")
	}
}

func all(numbers ...int) peers { return peers{numbers, numbers, numbers} }

// One application of five pods, step by step, as each of the sources sees it: the table of membership.
func TestOneApplicationThroughEverySource(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	servers := startEverySource(t, c, "--service-label=app")
	headless(t, admin, "cart")
	for i := range 5 {
		runPod(t, admin, "cart", i)
	}
	servers.serves(t, "cart", all(0, 1, 2, 3, 4))

	// Pods that are not ready are peers for the source pods, and for no other.
	_, err := controlplane.SetPodReady(ctx, admin, namespace, "cart-0", false)
	must(t, err)
	servers.serves(t, "cart", peers{[]int{1, 2, 3, 4}, []int{0, 1, 2, 3, 4}, []int{1, 2, 3, 4}})
	servers.excluded(t, "cart-0.cart.shop.svc.peers.test.", "not-ready", "endpointslices", "endpoints")
	_, err = controlplane.SetPodReady(ctx, admin, namespace, "cart-0", true)
	must(t, err)
	servers.serves(t, "cart", all(0, 1, 2, 3, 4))

	// A finalizer keeps a deleted pod: it stays, terminating, and is nobody's peer.
	hold(t, admin, "cart-1")
	must(t, controlplane.RemovePod(ctx, admin, namespace, "cart-1"))
	servers.serves(t, "cart", all(0, 2, 3, 4))
	servers.excluded(t, "cart-1.cart.shop.svc.peers.test.", "terminating", "endpointslices", "pods")
	servers.excluded(t, "198-101-100-2.shop.pod.peers.test.", "terminating", "endpointslices", "pods")
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, "cart-1", metav1.GetOptions{})
	must(t, err)
	if pod.DeletionTimestamp == nil {
		t.Error("the pod cart-1 does not terminate")
	}
	release(t, admin, "cart-1")
	servers.serves(t, "cart", all(0, 2, 3, 4))

	// Finished pods, one of which loses its address by the same update.
	finish(t, admin, "cart-2", corev1.PodSucceeded, true)
	servers.serves(t, "cart", all(0, 3, 4))
	servers.excluded(t, "cart-2.cart.shop.svc.peers.test.", "succeeded", "pods")
	finish(t, admin, "cart-3", corev1.PodFailed, false)
	servers.serves(t, "cart", all(0, 4))
	servers.excluded(t, "cart-3.cart.shop.svc.peers.test.", "failed", "pods")

	// Another address of the same pod takes the place of the first.
	v4, v6 := addressesOf("cart", 7)
	_, err = controlplane.SetPodRunning(ctx, admin, namespace, "cart-4", v4, v6)
	must(t, err)
	servers.serves(t, "cart", all(0, 7))

	for _, name := range []string{"cart-0", "cart-2", "cart-3", "cart-4"} {
		must(t, controlplane.RemovePod(ctx, admin, namespace, name))
	}
	servers.serves(t, "cart", all())
}

// hold puts a finalizer on a pod, release takes it off.
func hold(t *testing.T, client kubernetes.Interface, pod string) {
	t.Helper()
	setFinalizers(t, client, pod, `["peers.test/hold"]`)
}

func release(t *testing.T, client kubernetes.Interface, pod string) {
	t.Helper()
	setFinalizers(t, client, pod, "null")
}

func setFinalizers(t *testing.T, client kubernetes.Interface, pod, finalizers string) {
	t.Helper()
	_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), pod, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers), metav1.PatchOptions{})
	must(t, err)
}

// finish does the kubelet's work when the containers of a pod have ended.
func finish(t *testing.T, client kubernetes.Interface, pod string, phase corev1.PodPhase, keepAddress bool) {
	t.Helper()
	_, err := controlplane.UpdatePodStatus(t.Context(), client, namespace, pod, func(status *corev1.PodStatus) {
		status.Phase = phase
		for i := range status.Conditions {
			status.Conditions[i].Status = corev1.ConditionFalse
		}
		if !keepAddress {
			status.PodIP, status.PodIPs = "", nil
		}
	})
	must(t, err)
}

// An endpoint of a Service that publishes addresses that are not ready stays ready while its pod terminates.
func TestPublishedNotReadyPodTerminates(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	servers := startEverySource(t, c, "--service-label=app")
	headless(t, admin, "cart", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true })
	runPod(t, admin, "cart", 0)
	runPod(t, admin, "cart", 1)
	_, err := controlplane.SetPodReady(ctx, admin, namespace, "cart-1", false)
	must(t, err)
	servers.serves(t, "cart", all(0, 1))

	hold(t, admin, "cart-1")
	must(t, controlplane.RemovePod(ctx, admin, namespace, "cart-1"))
	servers["endpointslices"].await(t, v4Of("cart", 0), "cart.shop.svc.peers.test.", "A")
	servers["pods"].await(t, v4Of("cart", 0), "cart.shop.svc.peers.test.", "A")
	v4, _ := addressesOf("cart", 1)
	slicesNow, err := admin.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	if stays := pointers(slicesNow.Items); !slices.Contains(controlplane.ReadyAddresses(stays), v4) {
		t.Errorf("the API has no ready endpoint %s any more: the test shows nothing", v4)
	}
	servers.excluded(t, "cart-1.cart.shop.svc.peers.test.", "terminating", "endpointslices", "pods")
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// The pods that controllers make: hostname and subdomain of a StatefulSet, the label of a Deployment's, a Job's as they
// finish; and a pod that says nothing of a service.
func TestPodsOfControllers(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	servers := startEverySource(t, c, "--service-label=app")
	template := func(key, value string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key: value}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "image.test/main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			}}},
		}
	}
	replicas := int32(2)

	t.Run("StatefulSet", func(t *testing.T) {
		headless(t, admin, "db", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"tier": "db"} })
		_, err := admin.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "db"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: &replicas, ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}, Template: template("tier", "db"),
			},
		}, metav1.CreateOptions{})
		must(t, err)
		pods := runPodsOf(t, admin, "tier=db", "db", 2)
		servers.serves(t, "db", all(0, 1))
		for source, p := range servers {
			for i, pod := range pods {
				p.await(t, v4Of("db", i), pod+".db.shop.svc.peers.test.", "A")
				expect(t, p.dig(t, "_http._tcp.db.shop.svc.peers.test.", "SRV"), `SRV\s+0 50 8080 `+pod+`\.db\.shop\.svc\.peers\.test\.$`)
				p.await(t, v4Of("db", i), addressLabel(v4Of("db", i)[0])+".shop.pod.peers.test.", "A")
			}
			if t.Failed() {
				t.Fatalf("source %s", source)
			}
		}
	})

	t.Run("Deployment", func(t *testing.T) {
		headless(t, admin, "front")
		_, err := admin.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "front"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}}, Template: template("app", "front"),
			},
		}, metav1.CreateOptions{})
		must(t, err)
		runPodsOf(t, admin, "app=front", "front", 2)
		servers.serves(t, "front", all(0, 1))
		for source, p := range servers {
			if source == "endpoints" {
				continue // the same, without the second family
			}
			srv := p.short(t, "_http._tcp.front.shop.svc.peers.test.", "SRV")
			var want []string
			for i := range 2 {
				v4, v6 := addressesOf("front", i)
				for _, address := range []string{v4, v6} {
					want = append(want, "0_25_8080_"+addressLabel(address)+".front.shop.svc.peers.test.")
				}
			}
			slices.Sort(want)
			if !slices.Equal(srv, want) {
				t.Errorf("source %s: got %v, want %v", source, srv, want)
			}
		}
	})

	t.Run("Job", func(t *testing.T) {
		headless(t, admin, "batch")
		parallelism := int32(3)
		pod := template("app", "batch")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := admin.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "batch"},
			Spec:       batchv1.JobSpec{Parallelism: &parallelism, Completions: &parallelism, Template: pod},
		}, metav1.CreateOptions{})
		must(t, err)
		pods := runPodsOf(t, admin, "app=batch", "batch", 3)
		servers.serves(t, "batch", all(0, 1, 2))
		finish(t, admin, pods[0], corev1.PodSucceeded, true)
		servers.serves(t, "batch", all(1, 2))
		finish(t, admin, pods[1], corev1.PodFailed, false)
		servers.serves(t, "batch", all(2))
		hyphens := addressLabel(v4Of("batch", 0)[0]) + ".shop.pod.peers.test."
		servers.excluded(t, hyphens, "succeeded", "pods")
		// The address of a finished pod belongs to the next one that has it.
		_, err = controlplane.SetPodRunning(ctx, admin, namespace, pods[2], addressesOfBoth("batch", 0)...)
		must(t, err)
		servers.serves(t, "batch", all(0))
		servers["pods"].await(t, v4Of("batch", 0), hyphens, "A")
	})

	t.Run("a pod of no service", func(t *testing.T) {
		_, err := controlplane.RunPod(ctx, admin, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"}, Spec: corev1.PodSpec{NodeName: node},
		}, addressesOfBoth("alone", 0)...)
		must(t, err)
		for _, address := range addressesOfBoth("alone", 0) {
			servers["pods"].await(t, []string{address}, addressLabel(address)+".shop.pod.peers.test.", typeOf(address))
		}
		servers["pods"].awaitLog(t, `peer excluded.*reason=no-service.*pod=alone`)
	})
}

// runPodsOf waits until there are so many pods with a label, does the work of scheduler and kubelet for them, and
// returns their names, sorted.
func runPodsOf(t *testing.T, client kubernetes.Interface, selector, service string, count int) []string {
	t.Helper()
	var names []string
	ctx, cancel := withTimeLimit(t)
	defer cancel()
	_, err := watchtools.UntilWithSync(ctx, podWatch(client, selector), &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
		if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
			names = append(names, pod.Name)
		}
		return len(names) == count, nil
	})
	if err != nil {
		t.Fatalf("%d pods with %s: %v; there are %v", count, selector, err, names)
	}
	slices.Sort(names)
	for i, name := range names {
		must(t, controlplane.BindPod(ctx, client, namespace, name, node))
		_, err := controlplane.SetPodRunning(ctx, client, namespace, name, addressesOfBoth(service, i)...)
		must(t, err)
	}
	return names
}
