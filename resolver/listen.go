package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
)

// portTries is how often another free port is tried if the one that TCP got is taken for UDP.
const portTries = 16

// open opens the sockets of one address and returns the address with the port that it got.
func open(addr netip.AddrPort) (endpoint, netip.AddrPort, error) {
	for try := 1; ; try++ {
		e, bound, err := openOnce(addr)
		if err == nil || addr.Port() != 0 || try == portTries {
			return e, bound, err
		}
	}
}

// openOnce binds TCP first, and without SO_REUSEPORT: UDP sockets with that option would share a port in silence with
// those of another server, but the other one's listener does not.
func openOnce(addr netip.AddrPort) (endpoint, netip.AddrPort, error) {
	network := family(addr.Addr())
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp"+network, hostPort(addr))
	if err != nil {
		return endpoint{}, netip.AddrPort{}, listenError("tcp", addr, err)
	}
	e := endpoint{tcp: listener, stream: tcp}
	bound := listener.Addr().(*net.TCPAddr).AddrPort()
	for range udpSockets() {
		// Not bound itself: for both families it looks like IPv6 only.
		want := netip.AddrPortFrom(addr.Addr(), bound.Port())
		socket, err := openUDP("udp"+network, want)
		if err != nil {
			e.close()
			return endpoint{}, netip.AddrPort{}, listenError("udp", want, err)
		}
		e.udp = append(e.udp, socket)
	}
	return e, bound, nil
}

// openTLS opens the listener of one address for TLS and returns the address with the port that it got.
func openTLS(addr netip.AddrPort) (endpoint, netip.AddrPort, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp"+family(addr.Addr()), hostPort(addr))
	if err != nil {
		return endpoint{}, netip.AddrPort{}, listenError("tls", addr, err)
	}
	return endpoint{tcp: listener, stream: tls}, listener.Addr().(*net.TCPAddr).AddrPort(), nil
}

// family returns what package net has behind "tcp" and "udp" for an address.
func family(addr netip.Addr) string {
	switch {
	case addr.Unmap().Is4():
		return "4"
	case addr.Is6():
		return "6"
	}
	return ""
}

func hostPort(addr netip.AddrPort) string {
	if !addr.Addr().IsValid() {
		return ":" + strconv.Itoa(int(addr.Port()))
	}
	return addr.String()
}

// listenError says once which address and transport it was about; package net says some of it again and in other words.
func listenError(transport string, addr netip.AddrPort, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if call := (*os.SyscallError)(nil); errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Errorf("listen %s %s: %w", transport, hostPort(addr), err)
}
