// Package integration proves peerdns with the real programs around it.
package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"peerdns/integration/controlplane"
)

// timeLimit ends a test that waits in vain.
const timeLimit = 60 * time.Second

// tool returns the path of a program, or fails with the Debian package that has it.
func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed: apt-get install %s", name, pkg)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build builds peerdns once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "peerdns")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "peerdns")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/peerdns")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build peerdns: %w\n%s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// peerdns is a running peerdns.
type peerdns struct {
	cmd   *exec.Cmd
	port  string
	ended chan error

	mu   sync.Mutex // guards what follows
	log  bytes.Buffer
	more chan struct{} // closed, and replaced, after the log has grown
}

func (p *peerdns) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.log.Write(text)
}

// start runs peerdns on a free port of 127.0.0.1 until the test ends.
func start(t *testing.T, args ...string) *peerdns {
	t.Helper()
	program, err := build()
	must(t, err)
	p := &peerdns{more: make(chan struct{}), ended: make(chan error, 1)}
	p.cmd = exec.Command(program, append([]string{"--listen=127.0.0.1:0", "--admin-listen=off"}, args...)...)
	p.cmd.Stderr = p
	must(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		err := <-p.ended
		if t.Failed() {
			t.Logf("peerdns ended: %v, its log:\n%s", err, p.log.String())
		}
	})
	p.port = p.awaitLog(t, `addresses=\[127\.0\.0\.1:(\d+)\]`)[1]
	return p
}

func (p *peerdns) awaitLog(t *testing.T, pattern string) []string {
	t.Helper()
	re, deadline := regexp.MustCompile(pattern), time.After(timeLimit)
	for {
		p.mu.Lock()
		found, more := re.FindStringSubmatch(p.log.String()), p.more
		p.mu.Unlock()
		if found != nil {
			return found
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("the log of peerdns has no %s", pattern)
		}
	}
}

// dig runs dig and returns what it prints. Its exit status is 0 for every reply, whatever the rcode.
func (p *peerdns) dig(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"@127.0.0.1", "-p", p.port, "+tries=1", "+time=5"}, args...)
	out, err := exec.Command(tool(t, "dig", "bind9-dnsutils"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// short returns the sorted answers of dig +short.
func (p *peerdns) short(t *testing.T, args ...string) []string {
	t.Helper()
	lines := strings.Fields(strings.ReplaceAll(p.dig(t, append(args, "+short")...), " ", "_"))
	slices.Sort(lines)
	return lines
}

// await asks until the answers are as wanted.
func (p *peerdns) await(t *testing.T, want []string, args ...string) {
	t.Helper()
	slices.Sort(want)
	deadline := time.Now().Add(timeLimit)
	for got := p.short(t, args...); !slices.Equal(got, want); got = p.short(t, args...) {
		if time.Now().After(deadline) {
			t.Fatalf("%v: got %v, want %v", args, got, want)
		}
	}
}

// awaitMatch asks until what dig prints matches.
func (p *peerdns) awaitMatch(t *testing.T, pattern string, args ...string) {
	t.Helper()
	re, deadline := regexp.MustCompile("(?m)"+pattern), time.Now().Add(timeLimit)
	for text := p.dig(t, args...); !re.MatchString(text); text = p.dig(t, args...) {
		if time.Now().After(deadline) {
			t.Fatalf("%v: no match for %s in:\n%s", args, pattern, text)
		}
	}
}

func expect(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile("(?m)" + pattern).MatchString(text) {
			t.Errorf("no match for %s in:\n%s", pattern, text)
		}
	}
}

const (
	namespace = "shop"
	node      = "node-a"
)

// cluster is a control plane with a namespace and a node.
type cluster struct{ *controlplane.ControlPlane }

func startCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{controlplane.Run(t)}
	_, err := c.Admin().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	_, err = controlplane.CreateNode(t.Context(), c.Admin(), node, nil)
	must(t, err)
	return c
}

// groups are the API groups of the resources that peerdns reads.
var groups = map[string]string{"endpointslices": "discovery.k8s.io", "pods": "", "endpoints": ""}

// reader makes a ServiceAccount, named as the resource, that may list and watch that one resource of the namespace, and
// returns its kubeconfig.
func (c cluster) reader(t *testing.T, resource string) string {
	t.Helper()
	admin, ctx := c.Admin(), t.Context()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: resource}
	_, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{groups[resource]}, Resources: []string{resource}, Verbs: []string{"list", "watch"},
	}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: resource},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: resource}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, controlplane.WaitForAccess(ctx, admin, namespace, resource, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "watch", Group: groups[resource], Resource: resource,
	}))
	for other := range groups {
		if other != resource && allowed(ctx, t, admin, resource, "list", other) {
			t.Errorf("the reader of %s may list %s", resource, other)
		}
	}
	kubeconfig, err := c.Kubeconfig(ctx, namespace, resource)
	must(t, err)
	return kubeconfig
}

// headless creates a headless dual-stack Service for the pods that have its name as label app.
func headless(t *testing.T, client kubernetes.Interface, name string, changes ...func(*corev1.Service)) {
	t.Helper()
	policy := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, IPFamilyPolicy: &policy, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, change := range changes {
		change(service)
	}
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
	must(t, err)
}

// ranges number the addresses of services: each has its own.
var ranges = map[string]int{
	"web": 100, "many": 51, "cart": 101, "db": 102, "front": 103, "batch": 104, "alone": 105, "nodes": 106, "other": 107,
}

// addressesOf are those of pod number i of a service.
func addressesOf(service string, i int) (v4, v6 string) {
	return fmt.Sprintf("198.%d.100.%d", ranges[service], i+1), fmt.Sprintf("2001:db8:%d::%x", ranges[service], i+1)
}

func addressesOfBoth(service string, i int) []string {
	v4, v6 := addressesOf(service, i)
	return []string{v4, v6}
}

// addressLabel is an address with hyphens; none here begins or ends with one.
func addressLabel(address string) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(address)
}

func typeOf(address string) string {
	if strings.Contains(address, ":") {
		return "AAAA"
	}
	return "A"
}

func runPod(t *testing.T, client kubernetes.Interface, service string, i int) {
	t.Helper()
	name := fmt.Sprintf("%s-%d", service, i)
	_, err := controlplane.RunPod(t.Context(), client, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": service}},
		Spec:       corev1.PodSpec{NodeName: node, Hostname: name, Subdomain: service},
	}, addressesOfBoth(service, i)...)
	must(t, err)
}

// podWatch lists and watches the pods with a label.
func podWatch(client kubernetes.Interface, selector string) *cache.ListWatch {
	pods := client.CoreV1().Pods(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return pods.Watch(ctx, o)
		},
	}
}

func withTimeLimit(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), timeLimit)
}

// awaitGone calls get until it says that there is no such object.
func awaitGone(t *testing.T, get func() error) {
	t.Helper()
	deadline := time.Now().Add(timeLimit)
	for err := get(); !apierrors.IsNotFound(err); err = get() {
		must(t, err)
		if time.Now().After(deadline) {
			t.Fatal("the object does not go")
		}
	}
}

func v4Of(service string, pods ...int) []string {
	var addrs []string
	for _, i := range pods {
		v4, _ := addressesOf(service, i)
		addrs = append(addrs, v4)
	}
	return addrs
}

func v6Of(service string, pods ...int) []string {
	var addrs []string
	for _, i := range pods {
		_, v6 := addressesOf(service, i)
		addrs = append(addrs, v6)
	}
	return addrs
}

// allowed tells whether a ServiceAccount may do something in the namespace.
func allowed(ctx context.Context, t *testing.T, client kubernetes.Interface, account, verb, resource string) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: groups[resource], Resource: resource,
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.Allowed
}
