package integration

import (
	"io"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// gate is a way to the API server that can be shut: what passes it is cut, and what knocks is turned away.
type gate struct {
	to string

	mu    sync.Mutex // guards what follows
	shut  bool
	conns map[net.Conn]bool
}

// behindGate returns a kubeconfig like the given one, whose way to the API server is through a gate.
func (c cluster) behindGate(t *testing.T, kubeconfig string) (string, *gate) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	g := &gate{conns: map[net.Conn]bool{}}
	for _, server := range config.Clusters {
		g.to = server.Server[len("https://"):]
		server.Server = "https://" + listener.Addr().String()
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		g.close()
		running.Wait()
	})
	path := kubeconfig + ".gate"
	must(t, clientcmd.WriteToFile(*config, path))
	return path, g
}

func (g *gate) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer server.Close()
	if !g.enter(client) {
		return
	}
	defer g.leave(client)
	done := make(chan struct{}, 2)
	for _, way := range [...][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // either end may close, and the gate too
			done <- struct{}{}
		}()
	}
	<-done
	_ = client.Close()
	_ = server.Close()
	<-done
}

func (g *gate) enter(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.conns[conn] = true
	}
	return !g.shut
}

func (g *gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}
