package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// binaryPackage is the command that has all components in it.
	binaryPackage = "peerdns/integration/cmd/controlplane"
	// buildLimit bounds a build, and so the wait for another's. A cold one takes
	// about ten minutes of two cores.
	buildLimit = time.Hour
)

// Build compiles the binary of all components if it is not up to date, and returns
// its path: .bin/controlplane in the folder of this module. It must be called from
// within the module, as every test of it is. When nothing is cached it takes longer
// than the time that go test gives by default (see -timeout); else seconds.
func Build(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	module, err := goCommand(ctx, "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("find the module of the control plane: %w", err)
	}
	dir := filepath.Join(filepath.Dir(module), ".bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the control plane's binary: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "controlplane.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	binary := filepath.Join(dir, "controlplane")
	version, err := goCommand(ctx, "list", "-m", "-f={{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", fmt.Errorf("find the version of Kubernetes: %w", err)
	}
	// Built as a module, Kubernetes does not know its version: clients that ask would
	// get v0.0.0. Nobody debugs it: without symbols it is a third smaller.
	ldflags := "-ldflags=-s -w -X=k8s.io/component-base/version.gitVersion=" + version
	if _, err := goCommand(ctx, "build", ldflags, "-o", binary, binaryPackage); err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return binary, nil
}

// lock waits until no other process holds the lock file: go test runs the tests of
// several packages at once, and two cold builds would compile everything twice.
// Whoever holds it is building, or has ended: the kernel takes the lock from the
// dead.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the control plane's binary: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // closing unlocks; nothing was written
}

// goCommand runs the go tool and returns what it prints, less white space around it.
func goCommand(ctx context.Context, args ...string) (string, error) {
	var stderr strings.Builder
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, stderr.String())
	}
	return strings.TrimSpace(string(stdout)), nil
}
