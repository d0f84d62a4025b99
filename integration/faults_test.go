package integration

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerdns/integration/controlplane"
)

// A permission that is taken away takes no peer away; the log says what is missing, and when it is back.
func TestPermissionTakenAwayAndGivenBack(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	kubeconfig, gate := c.behindGate(t, c.reader(t, "pods"))
	p := start(t, "--zone=peers.test", "--source=pods", "--kubeconfig="+kubeconfig, "--namespace="+namespace)
	runPod(t, admin, "web", 0)
	runPod(t, admin, "web", 1)
	const web = "web.shop.svc.peers.test."
	p.await(t, v4Of("web", 0, 1), web)

	bindings := admin.RbacV1().RoleBindings(namespace)
	binding, err := bindings.Get(ctx, "pods", metav1.GetOptions{})
	must(t, err)
	must(t, bindings.Delete(ctx, "pods", metav1.DeleteOptions{}))
	for allowed(ctx, t, admin, "pods", "watch", "pods") { // the API server learns of it by watching itself
	}
	gate.close() // a watch that runs is not ended by the loss of its permission
	gate.open()
	p.awaitLog(t, `unavailable, the last known peers stay.*forbidden: needs a Role in namespace shop with the rule `+
		`\{apiGroups: \[\\"\\"\], resources: \[pods\], verbs: \[list, watch\]\}`)
	must(t, controlplane.RemovePod(ctx, admin, namespace, "web-1"))
	if got, want := p.short(t, web), v4Of("web", 0, 1); !slices.Equal(got, want) {
		t.Errorf("without permission: got %v, want the last known %v", got, want)
	}

	binding.ResourceVersion, binding.UID = "", ""
	_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
	must(t, err)
	must(t, controlplane.WaitForAccess(ctx, admin, namespace, "pods", authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "watch", Resource: "pods",
	}))
	p.await(t, v4Of("web", 0), web)
	p.awaitLog(t, "source recovered")
}

// etcd killed and started again under a running API server, and then both.
func TestEtcdAndAPIServerKilled(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.reader(t, "endpointslices"), "--namespace="+namespace)
	headless(t, admin, "web")
	runPod(t, admin, "web", 0)
	const web = "web.shop.svc.peers.test."
	p.await(t, v4Of("web", 0), web)
	for i, components := range [][]controlplane.Component{{controlplane.Etcd}, {controlplane.APIServer, controlplane.Etcd}} {
		for _, component := range components {
			must(t, c.Kill(component))
		}
		if got, want := p.short(t, web), v4Of("web", seq(i+1)...); !slices.Equal(got, want) {
			t.Errorf("without %v: got %v, want %v", components, got, want)
		}
		slices.Reverse(components)
		for _, component := range components {
			must(t, c.Restart(ctx, component))
		}
		runPod(t, admin, "web", i+1)
		p.await(t, v4Of("web", seq(i+2)...), web)
	}
}

// seq returns the numbers below n.
func seq(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
