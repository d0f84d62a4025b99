package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/miekg/dns"
)

const (
	kills      = 200 // 8 s on 2 cores, 18 s with the race detector
	killLives  = 4   // at a time, each in a folder of its own
	killPeers  = 250 // in each state
	killWindow = 5 * time.Millisecond
)

// The real program is killed at random moments while it writes its snapshot. Each next start, with a source that cannot be
// read, must serve the state before or the one that was being written: all of it, and nothing else.
func TestKilledWhileItWritesTheSnapshot(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the program many times")
	}
	program, err := exec.LookPath("peerdns")
	if err != nil {
		t.Fatal(err)
	}
	var older, newer atomic.Int64
	t.Run("lives", func(t *testing.T) {
		for i := range killLives {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				l := &life{T: t, program: program, dir: t.TempDir()}
				l.follow()
				l.state(0)
				l.start()
				l.awaitWritten()
				l.kill()
				last := 0 // the state that the file must have, or the one after it
				for next := 1; next <= kills/killLives; next++ {
					l.state(-1)
					l.start()
					switch got := l.served(); got {
					case last:
						older.Add(1)
					case next - 1:
						newer.Add(1)
						last = got
					default:
						t.Fatalf("after kill %d: state %d is served, want %d or %d", next, got, last, next-1)
					}
					l.state(next)
					l.awaitWriting()
					time.Sleep(rand.N(killWindow)) // no event to await: the moment is to be a random one
					l.kill()
				}
			})
		}
	})
	t.Logf("%d starts with the state before, %d with the one that was being written", older.Load(), newer.Load())
	if older.Load() == 0 || newer.Load() == 0 {
		t.Error("the moments of the kills all lie on one side of the rename: choose another window")
	}
}

// life is one program after the other over the same files.
type life struct {
	*testing.T
	program, dir string
	events       *fsnotify.Watcher
	cmd          *exec.Cmd
	log          *logFile
}

// logFile is the program's log, until its sockets are bound.
type logFile struct {
	text  bytes.Buffer
	bound chan string // the address
}

var boundAddress = regexp.MustCompile(`addresses=\[(127\.0\.0\.1:\d+)\]`)

// Write is called by one goroutine.
func (l *logFile) Write(p []byte) (int, error) {
	l.text.Write(p)
	if found := boundAddress.FindSubmatch(l.text.Bytes()); found != nil {
		select {
		case l.bound <- string(found[1]):
		default:
		}
	}
	return len(p), nil
}

func (l *life) follow() {
	l.Helper()
	var err error
	if l.events, err = fsnotify.NewWatcher(); err == nil {
		l.Cleanup(func() { l.events.Close() })
		err = l.events.Add(l.dir)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// state makes the manifest say state n, or nothing that could be read for -1. It has the first state from the start on.
func (l *life) state(n int) {
	l.Helper()
	text := "kind: EndpointSlice\n\ttab: here\n"
	if n >= 0 {
		var addrs []string
		for i := range killPeers {
			addrs = append(addrs, fmt.Sprintf(`{"addresses":["10.%d.%d.%d"]}`, n/256, n%256, i))
		}
		text = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"web-a","namespace":"shop",` +
			`"labels":{"kubernetes.io/service-name":"web"}},"endpoints":[` + strings.Join(addrs, ",") + `]}`
	}
	next := filepath.Join(l.dir, "next")
	err := os.WriteFile(next, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(next, filepath.Join(l.dir, "web.json"))
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *life) start() {
	l.Helper()
	l.log = &logFile{bound: make(chan string, 1)}
	l.cmd = exec.Command(l.program, "--listen=127.0.0.1:0", "--admin-listen=off", "--zone=peers.test", "--manifests=web.json",
		"--snapshot-file=peers.snapshot")
	l.cmd.Dir, l.cmd.Stderr = l.dir, l.log
	if err := l.cmd.Start(); err != nil {
		l.Fatal(err)
	}
}

func (l *life) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait() // killed, and so an error
}

// served returns which state the program serves, if it serves all of it and nothing else; else the test ends.
func (l *life) served() int {
	l.Helper()
	var addr string
	select {
	case addr = <-l.log.bound:
	case <-time.After(scriptLimit):
		l.kill()
		l.Fatalf("the sockets are not bound:\n%s", l.log.text.String())
	}
	question := new(dns.Msg)
	question.SetQuestion("web.shop.svc.peers.test.", dns.TypeA)
	reply, _, err := (&dns.Client{Net: "tcp", Timeout: scriptLimit}).Exchange(question, addr)
	if err != nil || reply.Rcode != dns.RcodeSuccess {
		l.kill()
		l.Fatalf("no answer: %v\n%v\n%s", err, reply, l.log.text.String())
	}
	states := map[int]int{}
	seen := map[string]bool{}
	for _, rr := range reply.Answer {
		ip := rr.(*dns.A).A.To4()
		states[int(ip[1])*256+int(ip[2])]++
		seen[ip.String()] = true
	}
	for state := range states {
		if len(states) == 1 && len(seen) == killPeers {
			return state
		}
	}
	l.kill()
	l.Fatalf("%d peers of %d states, want %d of one: %v", len(seen), len(states), killPeers, states)
	return 0
}

// awaitWriting returns when the temporary file is there.
func (l *life) awaitWriting() {
	l.awaitCreated(func(name string) bool { return strings.HasSuffix(name, ".tmp") })
}

// awaitWritten returns when the snapshot is there.
func (l *life) awaitWritten() {
	l.awaitCreated(func(name string) bool { return name == "peers.snapshot" })
}

func (l *life) awaitCreated(is func(name string) bool) {
	l.Helper()
	deadline := time.After(scriptLimit)
	for {
		select {
		case event := <-l.events.Events:
			if event.Has(fsnotify.Create) && is(filepath.Base(event.Name)) {
				return
			}
		case err := <-l.events.Errors:
			l.Fatal(err)
		case <-deadline:
			l.kill()
			l.Fatalf("nothing is written:\n%s", l.log.text.String())
		}
	}
}
