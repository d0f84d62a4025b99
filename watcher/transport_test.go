package watcher

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// startWatch sends a request whose reply goes on, and returns its body once the first of it has come.
func startWatch(t testing.TB, client *Client) io.ReadCloser {
	t.Helper()
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/watch").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { body.Close() })
	if _, err := io.ReadFull(body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return body
}

// answerWatches lets replies begin, and end with their requests; then it says so.
func (a *tlsAPI) answerWatches() (ended <-chan struct{}) {
	done := make(chan struct{}, 8)
	a.answer(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "{}")
		if r.URL.Path != "/watch" {
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		done <- struct{}{}
	})
	return done
}

// mustEnd waits until a body that never ends does.
func mustEnd(t testing.TB, body io.Reader) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, body)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(timeLimit):
		t.Fatal("the connection is still open")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	ca := issue(t, nil, authority)
	from, to := startAPI(t, issue(t, ca)), startAPI(t, issue(t, ca))
	client := newClient(t, newAccount(t, ca.certPEM()).api(from.URL))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, target := range []string{to.URL + "/test?token=" + secret, strings.Replace(to.URL, "https:", "http:", 1), from.URL + "/other", "/other", "::"} {
			from.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", target)
				w.WriteHeader(status)
			})
			mustFail(t, client, fmt.Sprintf("redirected (%d) to ", status))
			if got := from.take(); len(got) != 1 {
				t.Errorf("%d to %s: the API saw %+v, want the first request alone", status, target, got)
			}
			to.mustHaveSeenNothing(t)
		}
	}
}

func TestRequestsForOthersAreNotSent(t *testing.T) {
	ca := issue(t, nil, authority)
	api, other := startAPI(t, issue(t, ca)), startAPI(t, issue(t, ca))
	client := newClient(t, newAccount(t, ca.certPEM()).api(api.URL))
	for _, url := range []string{other.URL, strings.Replace(api.URL, "https:", "http:", 1)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := client.transport.RoundTrip(req); err == nil {
			reply.Body.Close()
			t.Errorf("%s: got a reply, want an error", url)
		}
	}
	api.mustHaveSeenNothing(t)
	other.mustHaveSeenNothing(t)
}

// What comes at the API's address in its place is sent nothing, whatever was trusted there before.
func TestServerReplacedWhileItIsWatched(t *testing.T) {
	ca, systemRoot := issue(t, nil, authority), systemRoot()
	for name, as := range map[string]*identity{
		"self-signed": issue(t, nil), "signed by a root of the system": issue(t, systemRoot), "for another host": issue(t, ca, elsewhere),
	} {
		t.Run(name, func(t *testing.T) {
			first := startAPI(t, issue(t, ca))
			first.answerWatches()
			client := newClient(t, newAccount(t, ca.certPEM()).api(first.URL))
			body := startWatch(t, client)
			first.end()
			second := startAPIAt(t, as, first.Listener.Addr().String(), true)
			mustEnd(t, body)
			for range 3 {
				mustFail(t, client, "failed to verify certificate")
			}
			second.mustHaveSeenNothing(t)
			second.end()
			third := startAPIAt(t, issue(t, ca), first.Listener.Addr().String(), true)
			mustGet(t, client, third)
		})
	}
}

// No error holds a token, and none is sent, whatever is wrong.
func TestNoTokenIsShown(t *testing.T) {
	ca := issue(t, nil, authority)
	server := startAPI(t, issue(t, ca))
	account := newAccount(t, ca.certPEM())
	client := newClient(t, account.api(server.URL))
	for _, status := range []int{400, 401, 403, 404, 410, 429, 500, 503} {
		server.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		if get(t, client) == nil {
			t.Errorf("%d: got no error", status)
		}
	}
	server.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mustFail(t, client, "stream error")
	server.end()
	mustFail(t, client, server.Listener.Addr().String())
	server.take()

	for name, text := range map[string]string{"spaces": secret + " 1", "lines": secret + "\n" + secret, "control": secret + "\x01"} {
		account.put(t, "token", text)
		_, _, err := account.api(server.URL).Client()
		if err == nil || !strings.Contains(err.Error(), "is not a token") {
			t.Errorf("a token with %s: got error %v", name, err)
		}
		mustHoldNoToken(t, fmt.Sprint(err))
		if err := get(t, client); err == nil { // which logs what is wrong with the file
			t.Error("a server that is away has answered")
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, text := range []string{secret, "users: " + secret, "users: [{user: {token: [" + secret + "]}}]", "clusters: [{name: c, cluster: {server: 'https://u:" + secret + "@h'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := API{Kubeconfig: path, Log: account.api("").Log}.Client()
		if err == nil {
			t.Errorf("kubeconfig %q: got no error", text)
		}
		mustHoldNoToken(t, fmt.Sprint(err))
	}
}

// relay passes octets on until it is frozen; then connections through it are half open.
type relay struct {
	net.Listener
	frozen chan struct{}
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener, make(chan struct{})}
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			running.Go(func() { r.pass(in, out) })
			running.Go(func() { r.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return r
}

func (r *relay) pass(from io.Reader, to io.Writer) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-r.frozen:
		default:
			_, _ = to.Write(buffer[:n])
		}
	}
}

func TestHalfOpenConnectionsAreFound(t *testing.T) {
	if total := apiLimits.quiet + apiLimits.ping; total >= time.Minute || apiLimits.dial+apiLimits.handshake >= time.Minute {
		t.Errorf("by default it takes %v, want less than a minute", total)
	}
	ca := issue(t, nil, authority)
	server := startAPI(t, issue(t, ca))
	server.answerWatches()
	r := startRelay(t, server.Listener.Addr().String())
	client := newClient(t, newAccount(t, ca.certPEM()).api("https://"+r.Addr().String()), func(l *limits) {
		l.quiet, l.ping = 50*time.Millisecond, 50*time.Millisecond
	})
	body := startWatch(t, client)
	close(r.frozen)
	mustEnd(t, body)
}

// A reply must begin in time, but a watch on which nothing happens is not ended for it.
func TestQuietWatchesGoOn(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		ca := issue(t, nil, authority)
		server := startAPIAt(t, issue(t, ca), "127.0.0.1:0", http2)
		const limit = 100 * time.Millisecond
		server.answer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				fmt.Fprint(w, "1")
				w.(http.Flusher).Flush()
			}
			select {
			case <-time.After(4 * limit): // time itself is what passes here
			case <-r.Context().Done():
			}
			fmt.Fprint(w, "2")
		})
		client := newClient(t, newAccount(t, ca.certPEM()).api(server.URL), func(l *limits) { l.header, l.quiet = limit, limit/2 })
		body := startWatch(t, client)
		if rest, err := io.ReadAll(body); string(rest) != "2" || err != nil {
			t.Errorf("HTTP/2 %v: got %q, %v; want the event that comes late", http2, rest, err)
		}
		mustFail(t, client, "timeout awaiting response headers")
	}
}
