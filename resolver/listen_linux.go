package resolver

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// udpSockets is how many sockets one UDP address gets: one for each core.
func udpSockets() int { return runtime.GOMAXPROCS(0) }

// sharePort lets several sockets have one port; the kernel gives all datagrams of a client to the same one.
func sharePort(_, _ string, raw syscall.RawConn) error {
	var err error
	if ctrlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); ctrlErr != nil {
		return ctrlErr
	}
	return err
}
