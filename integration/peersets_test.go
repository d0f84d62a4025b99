package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"peerdns/integration/controlplane"
)

// Pods name their own nodes by annotations, as one of the strategies for Erlang clusters has them.
func TestPodsNameTheirNodes(t *testing.T) {
	c := startCluster(t)
	p := start(t, "--zone=peers.test", "--source=pods", "--kubeconfig="+c.reader(t, "pods"), "--namespace="+namespace,
		"--service=nodes", "--port=epmd:4369/TCP",
		"--hostname-annotation=peers.test/hostname", "--nodename-annotation=peers.test/nodename")
	run := func(i int, host, base string) {
		v4, v6 := addressesOf("nodes", i)
		name := fmt.Sprintf("nodes-%d", i)
		_, err := controlplane.RunPod(t.Context(), c.Admin(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Labels: map[string]string{"release": "shop"},
				Annotations: map[string]string{"peers.test/hostname": host, "peers.test/nodename": base},
			},
			Spec: corev1.PodSpec{
				NodeName: node, Hostname: name, Subdomain: "nodes",
				Containers: []corev1.Container{{Name: "main", Image: "image.test/main", Env: []corev1.EnvVar{
					{Name: "OTHER", Value: "nothing"}, {Name: "NODE_HOST", Value: fmt.Sprintf("n%d.example.org", i)},
				}}},
			},
		}, v4, v6)
		must(t, err)
	}
	const inEnv = `$.spec.containers[?(@.name == 'main')].env[?(@.name == 'NODE_HOST')].value`
	run(0, inEnv, "$.metadata.labels.release")
	run(1, "$.status.podIPs[1].ip", "$.metadata.name")
	run(2, "$.metadata.labels.nothing", "$.[") // a path that finds nothing, and one that is none
	p.await(t, []string{`"shop@n0.example.org"`, `"nodes-1@` + v6Of("nodes", 1)[0] + `"`, `"nodes-2@` + v4Of("nodes", 2)[0] + `"`},
		"_nodes.nodes.shop.svc.peers.test.", "TXT")
	p.awaitLog(t, `object has a fault.*nodes-2`)
	p.await(t, []string{
		"0_33_4369_n0.example.org.", "0_33_4369_nodes-1.nodes.shop.svc.peers.test.", "0_33_4369_nodes-2.nodes.shop.svc.peers.test.",
	}, "_epmd._tcp.nodes.shop.svc.peers.test.", "SRV")
	p.await(t, v4Of("nodes", 0), "nodes-0.nodes.shop.svc.peers.test.", "A")
}

// Two names of one application side by side, and no more watches than selections.
func TestPeerSetsShareWatches(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	config := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(config, []byte(`
zone: peers.test
peer-sets:
- {name: alive, source: pods, namespace: shop, selector: app=web, service: web-alive}
- {name: named, source: pods, namespace: shop, selector: app=web}
- {name: epmd, source: pods, namespace: shop, selector: app=web, service: web-alive, port: "epmd:4369/tcp"}
- {name: others, source: pods, namespace: shop, selector: app=other, service: others}
`), 0o600))
	before := podWatches(ctx, t, admin)
	p := start(t, "--config="+config, "--kubeconfig="+c.reader(t, "pods"))
	p.awaitLog(t, "zones synced")
	for i := range 2 {
		runPod(t, admin, "web", i)
	}
	_, err := controlplane.SetPodReady(ctx, admin, namespace, "web-1", false)
	must(t, err)
	p.await(t, v4Of("web", 0, 1), "web-alive.shop.svc.peers.test.")
	p.await(t, v4Of("web", 0, 1), "web.shop.svc.peers.test.")
	p.await(t, nil, "others.shop.svc.peers.test.")
	p.await(t, []string{"0_50_4369_web-0.web-alive.shop.svc.peers.test.", "0_50_4369_web-1.web-alive.shop.svc.peers.test."},
		"_epmd._tcp.web-alive.shop.svc.peers.test.", "SRV")
	if now := podWatches(ctx, t, admin); now-before != 2 {
		t.Errorf("got %d watches of pods, want 2: three sets have the same selection", now-before)
	}
}

// podWatches is how many watches of the pods of a single namespace the API server has.
func podWatches(ctx context.Context, t *testing.T, admin kubernetes.Interface) int {
	t.Helper()
	metrics, err := admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	must(t, err)
	line := regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="pods",scope="namespace".*verb="WATCH".*\} (\d+)$`)
	total := 0
	for _, found := range line.FindAllSubmatch(metrics, -1) {
		n, err := strconv.Atoi(string(found[1]))
		must(t, err)
		total += n
	}
	return total
}

// Selectors are the API server's work: peerdns is never sent what it does not select.
func TestSelectorAndEveryNamespace(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	p := start(t, "--zone=peers.test", "--source=pods", "--kubeconfig="+c.AdminKubeconfig(), "--all-namespaces", "--selector=app in (web)")
	p.awaitLog(t, "zones synced")
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stock"}}, metav1.CreateOptions{})
	must(t, err)
	runPod(t, admin, "web", 0)
	runPod(t, admin, "other", 0)
	_, err = controlplane.RunPod(ctx, admin, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "stock", Name: "web-9", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node, Hostname: "web-9", Subdomain: "web"},
	}, v4Of("web", 9)...)
	must(t, err)
	p.await(t, v4Of("web", 0), "web.shop.svc.peers.test.")
	p.await(t, v4Of("web", 9), "web.stock.svc.peers.test.")
	p.await(t, nil, "other.shop.svc.peers.test.")
	// A pod that ceases to match leaves, although it lives on.
	pod, err := admin.CoreV1().Pods(namespace).Get(ctx, "web-0", metav1.GetOptions{})
	must(t, err)
	pod.Labels["app"] = "other"
	_, err = admin.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
	must(t, err)
	p.await(t, nil, "web.shop.svc.peers.test.")
	p.await(t, v4Of("web", 9), "web.stock.svc.peers.test.")
}
