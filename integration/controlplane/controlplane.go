// Package controlplane runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver and kube-controller-manager, each a process of its own on
// 127.0.0.1, so that a test can kill, stop or restart each alone.
//
//	Run(t) ─► etcd ◄─ kube-apiserver ◄─ kube-controller-manager
//	                       ▲
//	        Admin(), Kubeconfig(): the test, and the program under test
//
// The API is as in a cluster: RBAC decides, ServiceAccounts have tokens that the
// API server signed, Services are dual-stack, and the real controllers write
// EndpointSlices and Endpoints, drive Deployments, StatefulSets and Jobs, and
// collect garbage. There is no scheduler and no kubelet: RunPod and its siblings
// play their part, and no container ever runs.
//
// Linux only: the processes are tied to the test by the kernel (see process.go).
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Component is one process of the control plane.
type Component string

// The components, by the names of their binaries.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
)

// startOrder has every component after those that it needs to become ready.
var startOrder = []Component{Etcd, APIServer, ControllerManager}

const (
	// readyLimit bounds the wait for one component. It takes seconds on an idle
	// machine; tests run on busy ones.
	readyLimit = 2 * time.Minute
	// stopLimit is how long a component may take to end after SIGTERM. Those that
	// others need may take for ever while these hold on to them, or the other way
	// round; nothing is lost then by SIGKILL.
	stopLimit = 5 * time.Second
	// logTail is how much of a component's log an error carries, in bytes.
	logTail = 4 << 10
)

// ControlPlane is a running control plane. Its methods may be called from any
// goroutine; those that start or end components wait for each other.
type ControlPlane struct {
	// Set by Start, never changed.
	dir      string
	url      string
	token    string // of the user admin
	admin    kubernetes.Interface
	commands map[Component]command

	// Guarded by mu.
	mu        sync.Mutex
	processes map[Component]*process
}

// command is how to run a component and how to know that it is ready.
type command struct {
	binary   string
	args     []string
	logFile  string
	readyURL string
}

// Run builds and starts a control plane that lives as long as the test, and fails
// the test if that is not possible. Its files are in tb.ArtifactDir: run go test
// with -artifacts to keep them. When the test has failed, the ends of the
// components' logs are in its output.
func Run(tb testing.TB) *ControlPlane {
	tb.Helper()
	cp, err := Start(tb.Context(), tb.ArtifactDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			tb.Error(err)
		}
		if !tb.Failed() {
			return
		}
		for _, component := range startOrder {
			tb.Logf("end of the log of %s:\n%s", component, tail(cp.LogFile(component)))
		}
	})
	return cp
}

// Start builds the binary, which takes minutes when nothing is cached, and starts
// a control plane with all its files in dir, an existing empty folder. It returns
// when every component is ready. The end of ctx ends the wait, not the control
// plane: the caller must call Stop.
func Start(ctx context.Context, dir string) (*ControlPlane, error) {
	binary, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir) // the components run with their own ideas of relative paths
	if err != nil {
		return nil, fmt.Errorf("find the folder of the control plane: %w", err)
	}
	cp, err := configure(binary, dir)
	if err != nil {
		return nil, fmt.Errorf("configure the control plane: %w", err)
	}
	for _, component := range startOrder {
		if err := cp.start(ctx, component); err != nil {
			return nil, errors.Join(err, cp.Stop())
		}
	}
	return cp, nil
}

// URL is the address of the API server, for example "https://127.0.0.1:20123". It
// stays the same over restarts.
func (cp *ControlPlane) URL() string { return cp.url }

// Admin is a client of the user admin, who may do everything. It has no limit of
// requests per second.
func (cp *ControlPlane) Admin() kubernetes.Interface { return cp.admin }

// LogFile is the path of a component's log, which goes on over restarts.
func (cp *ControlPlane) LogFile(component Component) string {
	return cp.commands[component].logFile
}

// PID is the process id of a component, 0 when it is not running.
func (cp *ControlPlane) PID(component Component) int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if p := cp.processes[component]; p != nil && p.running() {
		return p.pid
	}
	return 0
}

// Kill ends a component with SIGKILL and waits until its process is gone.
func (cp *ControlPlane) Kill(component Component) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p, err := cp.runningProcess(component)
	if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", component, err)
	}
	delete(cp.processes, component)
	return nil
}

// Restart starts a component again and waits until it is ready. One that is still
// running is asked to end first.
func (cp *ControlPlane) Restart(ctx context.Context, component Component) error {
	if err := cp.end(component); err != nil {
		return err
	}
	return cp.start(ctx, component)
}

// Pause halts a component with SIGSTOP: its connections stay open, and the kernel
// still accepts new ones, but nothing answers. Resume undoes it.
func (cp *ControlPlane) Pause(component Component) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p, err := cp.runningProcess(component)
	if err != nil {
		return err
	}
	if err := p.pause(); err != nil {
		return fmt.Errorf("pause %s: %w", component, err)
	}
	return nil
}

// Resume lets a component that Pause halted go on.
func (cp *ControlPlane) Resume(component Component) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p, err := cp.runningProcess(component)
	if err != nil {
		return err
	}
	if err := p.resume(); err != nil {
		return fmt.Errorf("resume %s: %w", component, err)
	}
	return nil
}

// Stop ends all components, asking first and killing those that do not end in
// time, and waits until their processes are gone. It touches no process but those
// that this control plane started. A component that had ended without being told
// to is an error. Stopping twice does no harm.
func (cp *ControlPlane) Stop() error {
	var faults []error
	for _, component := range slices.Backward(startOrder) {
		faults = append(faults, cp.end(component))
	}
	return errors.Join(faults...)
}

// start runs a component that is not running and waits until it is ready. One that
// does not become ready is ended again.
func (cp *ControlPlane) start(ctx context.Context, component Component) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.processes[component] != nil {
		return fmt.Errorf("start %s: it is running already", component)
	}
	c, known := cp.commands[component]
	if !known {
		return fmt.Errorf("start %q: no such component", component)
	}
	p, err := startProcess(c.binary, c.args, c.logFile)
	if err != nil {
		return fmt.Errorf("start %s: %w", component, err)
	}
	if err := cp.awaitReady(ctx, p, c.readyURL); err != nil {
		err = fmt.Errorf("start %s: %w; the end of its log %s:\n%s", component, err, c.logFile, tail(c.logFile))
		return errors.Join(err, p.stop(stopLimit))
	}
	cp.processes[component] = p
	return nil
}

// end stops a component if it was started and waits for it.
func (cp *ControlPlane) end(component Component) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	p := cp.processes[component]
	if p == nil {
		return nil
	}
	delete(cp.processes, component)
	if !p.running() {
		logFile := cp.commands[component].logFile
		return fmt.Errorf("%s had ended by itself (%s); the end of its log %s:\n%s", component, p.outcome(), logFile, tail(logFile))
	}
	if err := p.stop(stopLimit); err != nil {
		return fmt.Errorf("stop %s: %w", component, err)
	}
	return nil
}

// runningProcess is the process of a component. The caller holds cp.mu.
func (cp *ControlPlane) runningProcess(component Component) (*process, error) {
	p := cp.processes[component]
	if p == nil || !p.running() {
		return nil, fmt.Errorf("%s is not running", component)
	}
	return p, nil
}

// tail is the end of a log file, or why there is none: it goes into messages only.
func tail(path string) string {
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-logTail):])
}
