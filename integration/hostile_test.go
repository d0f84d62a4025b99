package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// metric returns the value of a metric without labels.
func metric(t *testing.T, admin, name string) float64 {
	t.Helper()
	reply, err := http.Get("http://" + admin + "/metrics")
	must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must(t, err)
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s in\n%s", name, text)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	must(t, err)
	return value
}

// What strangers can do at once, while dnsperf asks over UDP and loses nothing: 5,000 connections that say nothing, frames
// that come octet by octet, garbage over both transports. Then all is as it was. docs/reliability.md has the figures.
func TestHostileHourInAMinute(t *testing.T) {
	const silent, slow, garbage = 5000, 200, 20000
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < silent+slow+1000 {
		limit.Cur = min(limit.Max, 65536)
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
	p := start(t, "--manifests="+manifest(t, 50, "web", "many"), "--zone=peers.test", "--admin-listen=127.0.0.1:0")
	admin := p.awaitLog(t, `admin=(127\.0\.0\.1:\d+)`)[1]
	p.awaitLog(t, "zones synced")
	addr := "127.0.0.1:" + p.port
	questions := filepath.Join(t.TempDir(), "questions")
	must(t, os.WriteFile(questions, []byte("web.shop.svc.peers.test. A\n_http._tcp.many.shop.svc.peers.test. SRV\n"+
		"198-100-100-7.shop.pod.peers.test. A\nstranger.shop.svc.peers.test. AAAA\n"), 0o600))
	dnsperf := func() string {
		out, err := exec.Command(tool(t, "dnsperf", "dnsperf"), "-s", "127.0.0.1", "-p", p.port, "-d", questions, "-n", "5000", "-Q", "4000", "-e").CombinedOutput()
		must(t, err)
		return string(out)
	}
	before := dnsperf() // also warms up
	goroutines, files, memory := metric(t, admin, "go_goroutines"), metric(t, admin, "process_open_fds"), metric(t, admin, "process_resident_memory_bytes")

	var conns []net.Conn
	var mu sync.Mutex // guards conns
	var clients atomic.Int64
	connect := func() net.Conn {
		// From many addresses, or the bound of a single client is all that they reach.
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(clients.Add(1)%16))}}
		conn, err := from.Dial("tcp", addr)
		if err != nil {
			t.Errorf("connect: %v", err)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
		return conn
	}
	var attack sync.WaitGroup
	attack.Go(func() {
		for range silent {
			connect()
		}
	})
	for range slow {
		attack.Go(func() {
			conn := connect()
			for i := 0; conn != nil && i < 8; i++ {
				if _, err := conn.Write([]byte{0}); err != nil {
					return // it was closed: that is what we are after
				}
			}
		})
	}
	attack.Go(func() {
		conn, err := net.Dial("udp", addr)
		must(t, err)
		defer conn.Close()
		for i := range garbage {
			// An error says that the port was not there for a moment, and it would show in what dnsperf loses.
			_, _ = conn.Write([]byte(strings.Repeat(fmt.Sprint(i), 1+i%40)))
		}
	})
	attack.Go(func() {
		for i := range 200 {
			if conn := connect(); conn != nil {
				_, _ = conn.Write([]byte(strings.Repeat(fmt.Sprintf("%c", i), 3000))) // it may be closed meanwhile
			}
		}
	})
	during := dnsperf()
	attack.Wait()
	peak, peakFiles := metric(t, admin, "process_resident_memory_bytes"), metric(t, admin, "process_open_fds")
	for _, conn := range conns {
		_ = conn.Close() // the server has closed most of them
	}
	for name, report := range map[string]string{"before": before, "during": during} {
		t.Logf("%s: %s", name, regexp.MustCompile(`Average Latency.*|Queries per second.*`).FindAllString(report, -1))
		expect(t, report, `Queries lost:\s+0 \(`, `NOERROR 15000 `, `NXDOMAIN 5000 `)
	}
	deadline, again := time.After(timeLimit), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	for metric(t, admin, "process_open_fds") > files+2 || metric(t, admin, "go_goroutines") > goroutines+2 { // the connection of our own question
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%v descriptors and %v goroutines, before %v and %v", metric(t, admin, "process_open_fds"),
				metric(t, admin, "go_goroutines"), files, goroutines)
		}
	}
	after := metric(t, admin, "process_resident_memory_bytes")
	t.Logf("resident MiB: %.1f before, %.1f at the end of the attack with %.0f descriptors, %.1f after", memory/(1<<20), peak/(1<<20), peakFiles, after/(1<<20))
	if peak-memory > 128<<20 {
		t.Errorf("the attack took %.0f MiB", (peak-memory)/(1<<20))
	}
}
