//go:build !linux

package resolver

import "syscall"

// udpSockets is one: elsewhere SO_REUSEPORT does not spread the load, or is not there.
func udpSockets() int { return 1 }

// receiveBuffer does not know.
func receiveBuffer(syscall.Conn) (size int, ok bool) { return 0, false }

func sharePort(_, _ string, _ syscall.RawConn) error { return nil }
