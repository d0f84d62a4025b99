package resolver

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// udpSockets is how many sockets one UDP address gets: one for each core.
func udpSockets() int { return runtime.GOMAXPROCS(0) }

// receiveBuffer returns the size of a socket's buffer for what comes, in octets. The kernel counts double, for its own
// needs (socket(7)).
func receiveBuffer(socket syscall.Conn) (size int, ok bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	if ctrlErr := raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	}); ctrlErr != nil || err != nil {
		return 0, false
	}
	return size / 2, true
}

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
