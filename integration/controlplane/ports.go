package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// freePorts are n different TCP ports of 127.0.0.1 on which nothing listens.
//
// They are picked below the range from which the kernel takes the ports of outgoing
// connections (ip_local_port_range, 32768 to 60999 unless set): a port from ":0"
// would be in it, and while the API server is down one of the many clients that
// try to reach it could be given its very port, and it could not come back.
func freePorts(n int) (ports []int, err error) {
	const (
		first, last = 20000, 31999
		tries       = 200
	)
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			err = errors.Join(err, listener.Close())
		}
	}()
	for range tries {
		port := first + rand.IntN(last-first+1)
		// Each stays open until all are found, so no two are the same.
		listener, listenErr := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if listenErr != nil {
			continue
		}
		listeners = append(listeners, listener)
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports: only %d in %d tries", n, len(ports), tries)
}
