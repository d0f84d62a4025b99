package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a component's process. One goroutine starts it and waits for it.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed when the process is gone

	// Written before done is closed, read after.
	err error
}

// startProcess runs a binary with its output appended to a log file.
func startProcess(binary string, args []string, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open its log: %w", err)
	}
	command := exec.Command(binary, args...)
	command.Stdout, command.Stderr = log, log
	// A test that panics, times out or is killed runs no cleanup. So the kernel is
	// told to kill the component when the thread that started it is gone.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The thread must last as long as the process: see above.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		_ = log.Close() // the process has its own copy
		started <- err
		if err != nil {
			return
		}
		p.err = command.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.os, p.pid = command.Process, command.Process.Pid
	return p, nil
}

// running tells whether the process is not yet gone.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// outcome says in words how a process that is gone has ended.
func (p *process) outcome() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}

// stop asks the process to end, kills it after limit, and waits until it is gone.
// How it ended does not matter: it was told to.
func (p *process) stop(limit time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.resume(); err != nil { // a paused process does not see SIGTERM
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done // SIGKILL can't be caught or put off
	return nil
}

func (p *process) pause() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// signal sends a signal. It is no fault that the process has just ended.
func (p *process) signal(signal syscall.Signal) error {
	if err := p.os.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.pid, err)
	}
	return nil
}
