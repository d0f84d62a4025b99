package watcher

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// generation is the connections that were made under one trust.
type generation struct {
	http *http.Transport

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	ended bool
}

var errTrustChanged = errors.New("the trusted certificates, or our own, have changed meanwhile")

// dial opens a connection that ends with the generation.
func (g *generation) dial(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), network, addr string) (net.Conn, error) {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		conn.Close()
		return nil, errTrustChanged
	}
	tracked := &trackedConn{conn, g}
	g.conns[tracked] = true
	return tracked, nil
}

// open returns how many connections are.
func (g *generation) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

func (g *generation) hasEnded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

// end cuts every connection, whatever it is doing, and lets no new one come to be.
func (g *generation) end() {
	g.mu.Lock()
	g.ended = true
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for conn := range conns {
		conn.Close()
	}
	g.http.CloseIdleConnections()
}

// trackedConn leaves its generation when it is closed.
type trackedConn struct {
	net.Conn
	of *generation
}

func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
