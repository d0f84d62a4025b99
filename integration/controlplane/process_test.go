package controlplane

import (
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopTellsOfAComponentThatEndedByItself(t *testing.T) {
	logFile := filepath.Join(t.TempDir(), "log")
	p, err := startProcess("sh", []string{"-c", "echo no peace >&2; exit 3"}, logFile)
	if err != nil {
		t.Fatal(err)
	}
	cp := &ControlPlane{
		commands:  map[Component]command{Etcd: {logFile: logFile}},
		processes: map[Component]*process{Etcd: p},
	}
	<-p.done
	err = cp.Stop()
	for _, want := range []string{"etcd had ended by itself", "exit status 3", "no peace"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	signal.Ignore(syscall.SIGTERM) // what is ignored here is so in the process too
	p, err := startProcess("tail", []string{"-f", "/dev/null"}, filepath.Join(t.TempDir(), "log"))
	signal.Reset(syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(100 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.running() {
		t.Error("it still runs")
	}
	if got, want := p.outcome(), "signal: killed"; got != want {
		t.Errorf("it ended with %q, want %q", got, want)
	}
}

func TestFreePortsAreOutOfTheRangeOfOutgoingConnections(t *testing.T) {
	ports, err := freePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if port >= 32768 || seen[port] {
			t.Errorf("got port %d among %v, want different ones below 32768", port, ports)
		}
		seen[port] = true
	}
}
