package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"peerdns": func() {
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
			os.Exit(run(signals, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
		},
	})
}

// The scripts run the program. Their own commands, beside those of testscript:
//
//	serve ARGS...            starts peerdns on a free port of 127.0.0.1 and waits until its sockets are bound
//	dig NAME TYPE [tcp|ch]    prints a reply in the manner of dig
//	await NAME TYPE REGEXP   asks until the reply matches
//	get PATH                 prints the status and the body of a reply of the admin server
//	awaitget PATH REGEXP     asks until they match
//	log REGEXP               waits until the log of peerdns matches
//	signal NAME              sends TERM or INT
//	ends CODE                waits for the end of peerdns and checks its exit status
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			s := new(server)
			env.Values[serverKey{}] = s
			env.Defer(s.kill)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).start(ts, args) },
			"dig": func(ts *testscript.TestScript, _ bool, args []string) {
				network, class := "udp", uint16(dns.ClassINET)
				for _, arg := range args[2:] {
					switch arg {
					case "tcp":
						network = arg
					case "ch":
						class = dns.ClassCHAOS
					}
				}
				reply, err := serverOf(ts).ask(network, args[0], args[1], class)
				ts.Check(err)
				fmt.Fprint(ts.Stdout(), reply)
			},
			"await": func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).await(ts, args) },
			"get": func(ts *testscript.TestScript, _ bool, args []string) {
				reply, err := serverOf(ts).get(args[0])
				ts.Check(err)
				fmt.Fprint(ts.Stdout(), reply)
			},
			"awaitget": func(ts *testscript.TestScript, _ bool, args []string) {
				s := serverOf(ts)
				s.awaitReply(ts, args[1], func() (string, error) { return s.get(args[0]) })
			},
			"log":    func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).awaitLog(ts, args[0]) },
			"signal": func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).signal(ts, args[0]) },
			"ends":   func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).ends(ts, args[0]) },
		},
	})
}

// scriptLimit ends a script that waits in vain.
const scriptLimit = 20 * time.Second

type serverKey struct{}

// server is the peerdns of one script.
type server struct {
	cmd   *exec.Cmd
	ended chan error
	addr  string
	admin string

	mu   sync.Mutex // guards what follows
	text bytes.Buffer
	more chan struct{} // closed, and replaced, after the log has grown
}

func serverOf(ts *testscript.TestScript) *server { return ts.Value(serverKey{}).(*server) }

func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(p)
}

func (s *server) start(ts *testscript.TestScript, args []string) {
	program, err := exec.LookPath("peerdns")
	ts.Check(err)
	s.more, s.ended = make(chan struct{}), make(chan error, 1)
	s.text.Reset()
	s.cmd = exec.Command(program, append([]string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...)...)
	s.cmd.Dir, s.cmd.Stderr = ts.Getenv("WORK"), s
	ts.Check(s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	found := s.awaitLog(ts, `addresses=\[(127\.0\.0\.1:\d+)\] tls=\[.*\] admin=(\S+)`)
	s.addr, s.admin = found[1], found[2]
	ts.Setenv("ADDR", s.addr)
	ts.Setenv("ADMIN", s.admin)
}

func (s *server) awaitLog(ts *testscript.TestScript, pattern string) []string {
	re := regexp.MustCompile(pattern)
	deadline := time.After(scriptLimit)
	for {
		s.mu.Lock()
		found, more, text := re.FindStringSubmatch(s.text.String()), s.more, s.text.String()
		s.mu.Unlock()
		if found != nil {
			return found
		}
		select {
		case <-more:
		case <-deadline:
			ts.Fatalf("the log has no %s:\n%s", pattern, text)
		}
	}
}

// ask returns the reply as dig prints it, without what differs from run to run.
func (s *server) ask(network, name, rrtype string, class uint16) (string, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), dns.StringToType[rrtype])
	question.Question[0].Qclass = class
	question.SetEdns0(4096, false)
	client := &dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := client.Exchange(question, s.addr)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s aa=%v tc=%v rd=%v ra=%v\n", dns.RcodeToString[reply.Rcode],
		reply.Authoritative, reply.Truncated, reply.RecursionDesired, reply.RecursionAvailable)
	for _, rr := range slices.Concat(reply.Answer, reply.Ns, reply.Extra) {
		if soa, ok := rr.(*dns.SOA); ok {
			soa.Serial = 0
		}
		if opt, ok := rr.(*dns.OPT); ok {
			for _, option := range opt.Option {
				fmt.Fprintf(&text, "EDE %s\n", option)
			}
			continue
		}
		fmt.Fprintln(&text, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return text.String(), nil
}

func (s *server) get(path string) (string, error) {
	reply, err := http.Get("http://" + s.admin + path)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return fmt.Sprintf("%s\n%s", reply.Status, body), err
}

func (s *server) await(ts *testscript.TestScript, args []string) {
	s.awaitReply(ts, args[2], func() (string, error) { return s.ask("udp", args[0], args[1], dns.ClassINET) })
}

func (s *server) awaitReply(ts *testscript.TestScript, pattern string, ask func() (string, error)) {
	re := regexp.MustCompile(pattern)
	deadline, again := time.After(scriptLimit), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		reply, err := ask()
		if err == nil && re.MatchString(reply) {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			ts.Fatalf("the reply does not come to match %s: %v\n%s", pattern, err, reply)
		}
	}
}

func (s *server) signal(ts *testscript.TestScript, name string) {
	sig := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT}[name]
	ts.Check(s.cmd.Process.Signal(sig))
}

func (s *server) ends(ts *testscript.TestScript, code string) {
	select {
	case err := <-s.ended:
		s.ended <- err
		if got := fmt.Sprint(s.cmd.ProcessState.ExitCode()); got != code {
			ts.Fatalf("exit status: got %s, want %s\n%s", got, code, s.text.String())
		}
	case <-time.After(scriptLimit):
		ts.Fatalf("peerdns does not end:\n%s", s.text.String())
	}
}

func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		err := <-s.ended
		s.ended <- err
	}
}
