package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"peerdns/integration/controlplane"
)

const node = "node-a"

func TestControlPlane(t *testing.T) {
	began := time.Now()
	cp := controlplane.Run(t)
	t.Logf("started in %s, with the build", time.Since(began).Round(time.Millisecond))
	if _, err := controlplane.CreateNode(t.Context(), cp.Admin(), node, nil); err != nil {
		t.Fatal(err)
	}

	t.Run("the API server knows its version", func(t *testing.T) {
		version, err := cp.Admin().Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if version.Major != "1" || !strings.HasPrefix(version.GitVersion, "v1."+version.Minor+".") {
			t.Errorf("got version %+v, want the same in all its parts", version)
		}
	})

	t.Run("a ServiceAccount may do what its Role says and no more", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createSliceReader(t, cp.Admin(), namespace)

		kubeconfig, err := cp.Kubeconfig(t.Context(), namespace, "reader")
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		checkSliceReader(t, config, namespace)

		folder, err := cp.ServiceAccountFolder(t.Context(), namespace, "reader")
		if err != nil {
			t.Fatal(err)
		}
		checkSliceReader(t, &rest.Config{
			Host:            cp.URL(),
			BearerTokenFile: filepath.Join(folder, "token"),
			TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(folder, "ca.crt")},
		}, namespace)

		if _, err := cp.Kubeconfig(t.Context(), namespace, "nobody"); !apierrors.IsNotFound(err) {
			t.Errorf("a kubeconfig of a ServiceAccount that does not exist: got error %v, want not found", err)
		}
	})

	t.Run("the controller writes slices of both families", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createHeadlessService(t, cp.Admin(), namespace)
		runPod(t, cp.Admin(), namespace, "web-0", "192.0.2.1", "2001:db8::1")
		runPod(t, cp.Admin(), namespace, "web-1", "192.0.2.2", "2001:db8::2")
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2")

		families := map[discoveryv1.AddressType]int{}
		list, err := cp.Admin().DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, slice := range list.Items {
			families[slice.AddressType] += len(slice.Endpoints)
		}
		if want := map[discoveryv1.AddressType]int{"IPv4": 2, "IPv6": 2}; fmt.Sprint(families) != fmt.Sprint(want) {
			t.Errorf("endpoints of each family: got %v, want %v", families, want)
		}
	})

	t.Run("slices follow a pod from ready to gone, and go with their Service", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createHeadlessService(t, cp.Admin(), namespace)
		runPod(t, cp.Admin(), namespace, "web-0", "192.0.2.1")
		runPod(t, cp.Admin(), namespace, "web-1", "192.0.2.2")
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.1", "192.0.2.2")

		if _, err := controlplane.SetPodReady(t.Context(), cp.Admin(), namespace, "web-0", false); err != nil {
			t.Fatal(err)
		}
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.2")
		if _, err := controlplane.SetPodReady(t.Context(), cp.Admin(), namespace, "web-0", true); err != nil {
			t.Fatal(err)
		}
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.1", "192.0.2.2")

		if _, err := controlplane.SetPodRunning(t.Context(), cp.Admin(), namespace, "web-0", "192.0.2.3"); err != nil {
			t.Fatal(err)
		}
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.2", "192.0.2.3")

		if err := cp.Admin().CoreV1().Pods(namespace).Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := controlplane.WaitForSlices(t.Context(), cp.Admin(), namespace, "web", func(slices []*discoveryv1.EndpointSlice) bool {
			for _, slice := range slices {
				for _, endpoint := range slice.Endpoints {
					if ptr.Deref(endpoint.Conditions.Terminating, false) && endpoint.Addresses[0] == "192.0.2.3" {
						return true
					}
				}
			}
			return false
		})
		if err != nil {
			t.Fatalf("a pod deleted is not terminating in a slice: %v", err)
		}
		if err := controlplane.RemovePod(t.Context(), cp.Admin(), namespace, "web-0"); err != nil {
			t.Fatal(err)
		}
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.2")

		if err := cp.Admin().CoreV1().Services(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = controlplane.WaitForSlices(t.Context(), cp.Admin(), namespace, "web", func(slices []*discoveryv1.EndpointSlice) bool {
			return len(slices) == 0
		})
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("a pod that a StatefulSet made can be bound and run", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createHeadlessService(t, cp.Admin(), namespace)
		createStatefulSet(t, cp.Admin(), namespace)
		waitForPod(t, cp.Admin(), namespace, "web-0")
		if err := controlplane.BindPod(t.Context(), cp.Admin(), namespace, "web-0", node); err != nil {
			t.Fatal(err)
		}
		if _, err := controlplane.SetPodRunning(t.Context(), cp.Admin(), namespace, "web-0", "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.1")
		waitForPod(t, cp.Admin(), namespace, "web-1") // made only once web-0 is ready
	})

	t.Run("objects and controllers outlive kill -9 of any component", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createSliceReader(t, cp.Admin(), namespace)
		createHeadlessService(t, cp.Admin(), namespace)
		kubeconfig, err := cp.Kubeconfig(t.Context(), namespace, "reader")
		if err != nil {
			t.Fatal(err)
		}
		var addresses []string
		for i, component := range []controlplane.Component{controlplane.APIServer, controlplane.ControllerManager, controlplane.Etcd} {
			addresses = append(addresses, fmt.Sprintf("192.0.2.%d", i))
			runPod(t, cp.Admin(), namespace, fmt.Sprintf("web-%d", i), addresses[i])
			waitForAddresses(t, cp.Admin(), namespace, addresses...)

			before := cp.PID(component)
			if err := cp.Kill(component); err != nil {
				t.Fatal(err)
			}
			if pid := cp.PID(component); pid != 0 {
				t.Errorf("%s has process %d after Kill", component, pid)
			}
			if component == controlplane.APIServer {
				if _, err := cp.Admin().Discovery().ServerVersion(); err == nil {
					t.Error("the API server answers after Kill")
				}
			}
			if err := cp.Kill(component); err == nil {
				t.Errorf("Kill of %s, which is dead: got no error", component)
			}
			restart(t, cp, component)
			if pid := cp.PID(component); pid == 0 || pid == before {
				t.Errorf("%s after Restart: got process %d, want another than 0 and %d", component, pid, before)
			}
			waitForAddresses(t, cp.Admin(), namespace, addresses...)
		}
		// All of them: what is written after the last restart, and a token from before.
		runPod(t, cp.Admin(), namespace, "web-9", "192.0.2.9")
		waitForAddresses(t, cp.Admin(), namespace, append(addresses, "192.0.2.9")...)
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		checkSliceReader(t, config, namespace)
	})

	t.Run("a paused API server says nothing until it is resumed", func(t *testing.T) {
		if err := cp.Pause(controlplane.APIServer); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := cp.Admin().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); ctx.Err() == nil {
			t.Errorf("a paused API server: got an answer (error %v), want none", err)
		}
		if err := cp.Resume(controlplane.APIServer); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := cp.Admin().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil {
			t.Errorf("a resumed API server: %v", err)
		}
	})

	t.Run("a wait for what does not come ends and tells what is there", func(t *testing.T) {
		namespace := createNamespace(t, cp.Admin())
		createHeadlessService(t, cp.Admin(), namespace)
		runPod(t, cp.Admin(), namespace, "web-0", "192.0.2.1")
		waitForAddresses(t, cp.Admin(), namespace, "192.0.2.1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := controlplane.WaitForAddresses(ctx, cp.Admin(), namespace, "web", "192.0.2.1", "192.0.2.2")
		if err == nil || !strings.Contains(err.Error(), `they have ["192.0.2.1"]`) {
			t.Errorf("got error %v, want one that tells the address of web-0", err)
		}
	})
}

func TestStopLeavesNoProcess(t *testing.T) {
	dir := t.TempDir()
	cp, err := controlplane.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(processesOf(t, dir)); got != 3 {
		t.Errorf("got %d processes while running, want 3", got)
	}
	if err := cp.Pause(controlplane.APIServer); err != nil { // it must be ended all the same
		t.Error(err)
	}
	began := time.Now()
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	if left := processesOf(t, dir); len(left) != 0 {
		t.Errorf("left after Stop: processes %v", left)
	}
	if err := cp.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
}

func TestFailedStartTellsTheLogAndLeavesNoProcess(t *testing.T) {
	dir := t.TempDir()
	cp, err := controlplane.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "etcd.yaml"), []byte("no-such-key: 1\nlog-level: no-such-level\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cp.Kill(controlplane.Etcd); err != nil {
		t.Fatal(err)
	}
	err = cp.Restart(t.Context(), controlplane.Etcd)
	if err == nil || !strings.Contains(err.Error(), "ended by itself") || !strings.Contains(err.Error(), "no-such-level") {
		t.Errorf("etcd with a bad configuration: got error %v, want one with its log in it", err)
	}
	if got := len(processesOf(t, dir)); got != 2 {
		t.Errorf("got %d processes without etcd, want 2", got)
	}
}

// crashDir is set for the test process that TestComponentsDieWithTheTest kills.
const crashDir = "CONTROLPLANE_TEST_CRASH_DIR"

func TestComponentsDieWithTheTest(t *testing.T) {
	if dir := os.Getenv(crashDir); dir != "" {
		if _, err := controlplane.Start(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		fmt.Println("\nstarted")
		select {} // until killed
	}

	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestComponentsDieWithTheTest$")
	command.Env = append(os.Environ(), crashDir+"="+dir)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	started := false
	for lines := bufio.NewScanner(stdout); !started && lines.Scan(); {
		output.WriteString(lines.Text() + "\n")
		started = lines.Text() == "started"
	}
	var pids []int
	if started {
		pids = processesOf(t, dir)
	}
	if err := command.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = command.Wait() // it was killed
	if len(pids) != 3 {
		t.Fatalf("got %d processes before the kill, want 3; output:\n%s", len(pids), &output)
	}
	for _, pid := range pids {
		waitUntilGone(t, pid)
	}
}

// createNamespace makes a namespace with a name of its own.
func createNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// createSliceReader makes a ServiceAccount "reader" that may list and watch slices
// and nothing else.
func createSliceReader(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "reader"}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"discovery.k8s.io"},
			Resources: []string{"endpointslices"},
			Verbs:     []string{"list", "watch"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "reader"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = controlplane.WaitForAccess(t.Context(), client, namespace, "reader", authorizationv1.ResourceAttributes{
		Namespace: namespace,
		Verb:      "list",
		Group:     "discovery.k8s.io",
		Resource:  "endpointslices",
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkSliceReader checks that a client may do what createSliceReader allows.
func checkSliceReader(t *testing.T, config *rest.Config, namespace string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing slices: %v", err)
	}
	if _, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods: got error %v, want forbidden", err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing slices of another namespace: got error %v, want forbidden", err)
	}
}

// createHeadlessService makes a dual-stack headless Service "web" of the pods that
// runPod makes.
func createHeadlessService(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP:      corev1.ClusterIPNone,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Selector:       map[string]string{"app": "web"},
			Ports:          []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// createStatefulSet makes a StatefulSet "web" of two pods of the Service "web".
func createStatefulSet(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "web",
			Replicas:    ptr.To[int32](2),
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "image.test/web"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// runPod runs a pod of the Service "web".
func runPod(t *testing.T, client kubernetes.Interface, namespace, name string, addresses ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	if _, err := controlplane.RunPod(t.Context(), client, pod, addresses...); err != nil {
		t.Fatal(err)
	}
}

func waitForAddresses(t *testing.T, client kubernetes.Interface, namespace string, addresses ...string) {
	t.Helper()
	if err := controlplane.WaitForAddresses(t.Context(), client, namespace, "web", addresses...); err != nil {
		t.Fatal(err)
	}
}

// waitForPod waits until a pod has been made.
func waitForPod(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, err := watchtools.UntilWithSync(ctx, source, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		return event.Type != watch.Deleted, nil
	})
	if err != nil {
		t.Fatalf("wait for pod %s/%s: %v", namespace, name, err)
	}
}

func restart(t *testing.T, cp *controlplane.ControlPlane, component controlplane.Component) {
	t.Helper()
	began := time.Now()
	if err := cp.Restart(t.Context(), component); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s ready again after %s", component, time.Since(began).Round(time.Millisecond))
}

// processesOf are the processes, by whomever they were started, that have a folder
// in their command line.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		// One that ended just now can't be read, and a dead one's is empty.
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// waitUntilGone waits until a process that is no child of this one has ended.
func waitUntilGone(t *testing.T, pid int) {
	t.Helper()
	const limit = 10 * time.Second
	handle, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatalf("open process %d: %v", pid, err)
	}
	defer func() { _ = unix.Close(handle) }()
	for deadline := time.Now().Add(limit); ; {
		ended := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
		n, err := unix.Poll(ended, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			t.Fatalf("wait for process %d: %v", pid, err)
		case n == 0:
			t.Errorf("process %d still runs %s after the test that started it was killed", pid, limit)
			if err := unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0); err != nil {
				t.Errorf("kill process %d: %v", pid, err)
			}
		}
		return
	}
}
