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
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

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
	p.cmd = exec.Command(program, append([]string{"--listen=127.0.0.1:0"}, args...)...)
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

// cluster is a control plane with a namespace, a node, and a ServiceAccount that may list and watch EndpointSlices.
type cluster struct {
	*controlplane.ControlPlane
	kubeconfig string
}

func startCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{ControlPlane: controlplane.Run(t)}
	admin, ctx := c.Admin(), t.Context()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	_, err = controlplane.CreateNode(ctx, admin, node, nil)
	must(t, err)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "peerdns"}
	_, err = admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"},
	}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "peerdns"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "peerdns"}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, controlplane.WaitForAccess(ctx, admin, namespace, "peerdns", authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "watch", Group: "discovery.k8s.io", Resource: "endpointslices",
	}))
	c.kubeconfig, err = c.Kubeconfig(ctx, namespace, "peerdns")
	must(t, err)
	return c
}

// headless creates a headless dual-stack Service for the pods that have its name as label app.
func headless(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	policy := corev1.IPFamilyPolicyRequireDualStack
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, IPFamilyPolicy: &policy, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// addressesOf are those of pod number i of a service; each service has its own range.
func addressesOf(service string, i int) (v4, v6 string) {
	group := map[string]int{"web": 100, "many": 51}[service]
	return fmt.Sprintf("198.%d.100.%d", group, i+1), fmt.Sprintf("2001:db8:%d::%x", group, i+1)
}

func runPod(t *testing.T, client kubernetes.Interface, service string, i int) {
	t.Helper()
	v4, v6 := addressesOf(service, i)
	name := fmt.Sprintf("%s-%d", service, i)
	_, err := controlplane.RunPod(t.Context(), client, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": service}},
		Spec:       corev1.PodSpec{NodeName: node, Hostname: name, Subdomain: service},
	}, v4, v6)
	must(t, err)
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

// The path that all else hangs on: pods and a Service on a real API server, slices by the real controller, peerdns with
// no more permission than it needs, and the answers that dig gets.
func TestSlicesBecomeAnswers(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.kubeconfig, "--namespace="+namespace, "--shutdown-delay=0s")
	const web = "web.shop.svc.peers.test."

	expect(t, p.dig(t, web, "A"), "status: NXDOMAIN", `flags: qr aa rd;`, `^peers\.test\.\s+2\s+IN\s+SOA\s+ns\.dns\.peers\.test\.`)
	headless(t, admin, "web")
	for i := range 3 {
		runPod(t, admin, "web", i)
	}
	p.await(t, v4Of("web", 0, 1, 2), web, "A")
	p.await(t, v6Of("web", 0, 1, 2), web, "AAAA")

	t.Run("records over UDP and TCP", func(t *testing.T) {
		for _, transport := range []string{"+notcp", "+tcp"} {
			if got, want := p.short(t, transport, web, "A"), v4Of("web", 0, 1, 2); !slices.Equal(got, want) {
				t.Errorf("%s A: got %v, want %v", transport, got, want)
			}
			if got, want := p.short(t, transport, web, "AAAA"), v6Of("web", 0, 1, 2); !slices.Equal(got, want) {
				t.Errorf("%s AAAA: got %v, want %v", transport, got, want)
			}
			srv := p.dig(t, transport, "_http._tcp."+web, "SRV")
			for i := range 3 {
				v4, v6 := addressesOf("web", i)
				host := fmt.Sprintf(`web-%d\.web\.shop\.svc\.peers\.test\.`, i)
				expect(t, srv, `^_http\._tcp\.web\.shop\.svc\.peers\.test\.\s+5\s+IN\s+SRV\s+0 33 8080 `+host+`$`,
					`^`+host+`\s+5\s+IN\s+A\s+`+v4+`$`, `^`+host+`\s+5\s+IN\s+AAAA\s+`+v6+`$`)
			}
			expect(t, srv, `ANSWER: 3, AUTHORITY: 0, ADDITIONAL: 7`)
			hyphens := p.dig(t, transport, "198-100-100-1.shop.pod.peers.test.", "A")
			expect(t, hyphens, `\sA\s+198\.100\.100\.1$`)
			expect(t, p.dig(t, transport, "2001-DB8-64--1.shop.pod.peers.test.", "AAAA"), "status: NXDOMAIN")
			expect(t, p.dig(t, transport, "2001-DB8-100-0-0--1.shop.pod.peers.test.", "AAAA"), `\sAAAA\s+2001:db8:100::1$`)
			other := p.dig(t, transport, "198-100-100-1.shop.pod.peers.test.", "AAAA")
			expect(t, other, "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `^peers\.test\.\s+2\s+IN\s+SOA\s`)
			stranger := p.dig(t, transport, "stranger.shop.svc.peers.test.", "A")
			expect(t, stranger, "status: NXDOMAIN", "ANSWER: 0, AUTHORITY: 1", `^peers\.test\.\s+2\s+IN\s+SOA\s`)
			expect(t, p.dig(t, transport, "example.test.", "A"), "status: REFUSED")
		}
	})

	t.Run("the cluster changes", func(t *testing.T) {
		runPod(t, admin, "web", 3)
		runPod(t, admin, "web", 4)
		p.await(t, v4Of("web", 0, 1, 2, 3, 4), web, "A")
		for i := 2; i < 5; i++ {
			must(t, controlplane.RemovePod(ctx, admin, namespace, fmt.Sprintf("web-%d", i)))
		}
		p.await(t, v4Of("web", 0, 1), web, "A")
		p.await(t, v6Of("web", 0, 1), web, "AAAA")

		_, err := controlplane.SetPodReady(ctx, admin, namespace, "web-0", false)
		must(t, err)
		p.await(t, v4Of("web", 1), web, "A")
		expect(t, p.dig(t, "web-0."+web, "A"), "status: NXDOMAIN")
		p.awaitLog(t, `peer excluded.*reason=not-ready.*pod=web-0`)
		_, err = controlplane.SetPodReady(ctx, admin, namespace, "web-0", true)
		must(t, err)
		p.await(t, v4Of("web", 0, 1), web, "A")

		must(t, admin.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
		p.await(t, nil, web, "A")
		expect(t, p.dig(t, web, "A"), "status: NXDOMAIN")
	})

	t.Run("no more permission than list and watch of slices", func(t *testing.T) {
		for _, verb := range []string{"get", "list", "watch"} {
			for _, resource := range []string{"pods", "services", "endpoints", "secrets"} {
				if allowed(ctx, t, admin, verb, "", resource) {
					t.Errorf("peerdns' ServiceAccount may %s %s", verb, resource)
				}
			}
		}
	})

	t.Run("the API goes and comes back", func(t *testing.T) {
		headless(t, admin, "web")
		p.await(t, v4Of("web", 0, 1), web, "A")
		must(t, c.Kill(controlplane.APIServer))
		p.awaitLog(t, `source unavailable, the last known peers stay`)
		if got, want := p.short(t, web, "A"), v4Of("web", 0, 1); !slices.Equal(got, want) {
			t.Errorf("while the API is away: got %v, want %v", got, want)
		}
		must(t, c.Restart(ctx, controlplane.APIServer))
		p.awaitLog(t, `source recovered`)
		runPod(t, admin, "web", 2)
		p.await(t, v4Of("web", 0, 1, 2), web, "A")
	})

	t.Run("SIGTERM", func(t *testing.T) {
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-p.ended:
			p.ended <- err
			must(t, err)
		case <-time.After(timeLimit):
			t.Fatal("peerdns does not end")
		}
	})
}

func allowed(ctx context.Context, t *testing.T, client kubernetes.Interface, verb, group, resource string) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":peerdns",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: group, Resource: resource,
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.Allowed
}

// An Erlang node whose resolver asks peerdns gets all of 60 peers: a reply of 512 octets has TC, and then it asks over
// TCP.
func TestErlangGetsEveryPeer(t *testing.T) {
	erl := tool(t, "erl", "erlang-base")
	c := startCluster(t)
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.kubeconfig, "--namespace="+namespace)
	headless(t, c.Admin(), "many")
	pods := make([]int, 60)
	for i := range pods {
		pods[i] = i
		runPod(t, c.Admin(), "many", i)
	}
	const many = "many.shop.svc.peers.test"
	p.await(t, v4Of("many", pods...), many+".", "A")
	p.await(t, v6Of("many", pods...), many+".", "AAAA")
	expect(t, p.dig(t, "+noedns", "+ignore", many+".", "A"), "flags: qr aa tc rd;")

	// Without the first line the host's own resolv.conf comes on top.
	inetrc := filepath.Join(t.TempDir(), "inetrc")
	must(t, os.WriteFile(inetrc, fmt.Appendf(nil, "{resolv_conf, \"\"}.\n{hosts_file, \"\"}.\n{lookup, [dns]}.\n"+
		"{nameserver, {127,0,0,1}, %s}.\n", p.port), 0o600))
	eval := fmt.Sprintf(`
		{ok, A} = inet_res:getbyname(%[1]q, a),
		[io:format("a ~s~n", [inet:ntoa(X)]) || X <- element(6, A)],
		{ok, Srv} = inet_res:getbyname("_http._tcp." ++ %[1]q, srv),
		[io:format("srv ~p ~s~n", [Port, Host]) || {_, _, Port, Host} <- element(6, Srv)],
		[io:format("aaaa ~s~n", [inet:ntoa(X)]) || X <- inet_res:lookup(%[1]q, in, aaaa)],
		halt().`, many)
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, erl, "-noshell", "-eval", eval)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "ERL_INETRC="+inetrc)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("erl: %v\n%s", err, out)
	}
	var want []string
	for _, i := range pods {
		v4, v6 := addressesOf("many", i)
		want = append(want, "a "+v4, "aaaa "+v6, fmt.Sprintf("srv 8080 many-%d.%s", i, many))
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("erl printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The examples in the documents are what dig prints.
func TestExamplesOfTheDocuments(t *testing.T) {
	tool(t, "dig", "bind9-dnsutils")
	p := start(t, "--manifests=../deploy/examples", "--zone=cluster.local")
	p.awaitLog(t, "zones synced")
	examples := 0
	for _, document := range []string{"../README.md", "../docs/peer-sets.md"} {
		text, err := os.ReadFile(document)
		must(t, err)
		for _, block := range strings.Split(string(text), "```")[1:] {
			for _, example := range strings.Split(block, "\n$ ")[1:] {
				command, want, _ := strings.Cut(example, "\n")
				if !strings.HasPrefix(command, "dig ") {
					continue
				}
				examples++
				out, err := exec.Command("sh", "-c", strings.Replace(command, "-p 5300", "+nocmd -p "+p.port, 1)).CombinedOutput()
				must(t, err)
				if got := string(out); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("%s: %s\nthe document shows\n%s\ndig prints\n%s", document, command, want, got)
				}
			}
		}
	}
	if examples < 5 {
		t.Errorf("got %d examples, want all 5", examples)
	}
}
