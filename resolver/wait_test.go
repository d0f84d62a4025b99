package resolver

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// asker asks a server without sockets and notes what comes back and when.
type asker struct {
	*Server
	t       *testing.T
	start   time.Time
	waiting sync.WaitGroup
	mu      sync.Mutex
	replies []string // rcode and time
}

func newAsker(t *testing.T, zones Viewer) *asker {
	return &asker{t: t, Server: newServer(Options{MaxUDPSize: DefaultMaxUDPSize}, zones), start: time.Now()}
}

func (a *asker) ask(name string) {
	a.answer(packed(a.t, question(name, dns.TypeA)), netip.Addr{}, udp, a.udpWaiting, &a.waiting, func(reply []byte) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.replies = append(a.replies, dns.RcodeToString[int(reply[3]&0xF)]+" after "+time.Since(a.start).String())
	})
}

func (a *asker) want(replies ...string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.replies) != len(replies) {
		a.t.Fatalf("got %q, want %q", a.replies, replies)
	}
	for i, want := range replies {
		if a.replies[i] != want {
			a.t.Errorf("got %q, want %q", a.replies[i], want)
		}
	}
}

func TestAQuestionWaitsForTheFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "peers.test.")
		a := newAsker(t, store)
		a.ask("web.shop.svc.peers.test.")
		a.ask("web.other.test.")
		a.want("REFUSED after 0s")
		time.Sleep(1500 * time.Millisecond) // of the bubble: no time passes
		synctest.Wait()
		a.want("REFUSED after 0s")
		store.Apply(zone.Change{Object: "web", Peers: []zone.Peer{peer("web", "", "192.0.2.1")}})
		synctest.Wait()
		a.want("REFUSED after 0s", "NOERROR after 1.5s")
		a.ask("nosuch.peers.test.")
		a.want("REFUSED after 0s", "NOERROR after 1.5s", "NXDOMAIN after 1.5s")
	})
}

func TestWithoutASyncAQuestionIsToldAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, newStore(t, "peers.test."))
		a.ask("web.shop.svc.peers.test.")
		a.waiting.Wait()
		a.want("SERVFAIL after 2s")
	})
}

// wakingViewer has news all the time, and never the one that is waited for.
type wakingViewer struct {
	*zone.Store
	watched atomic.Int32
}

func (v *wakingViewer) Watch() (*zone.View, <-chan struct{}) {
	v.watched.Add(1)
	changed := make(chan struct{})
	time.AfterFunc(time.Second/2, func() { close(changed) })
	return v.View(), changed
}

func TestNewsWithoutASyncDoNotEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		viewer := &wakingViewer{Store: newStore(t, "peers.test.")}
		a := newAsker(t, viewer)
		a.ask("web.shop.svc.peers.test.")
		a.waiting.Wait()
		a.want("SERVFAIL after 2s")
		if n := viewer.watched.Load(); n < 4 {
			t.Errorf("watched %d times in 2 s with news every 0.5 s", n)
		}
	})
}

func TestWaitingQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "peers.test.")
		a := newAsker(t, store)
		var asked atomic.Int32
		go func() {
			for range maxWaiting + 10 {
				a.ask("web.shop.svc.peers.test.")
				asked.Add(1)
			}
		}()
		synctest.Wait()
		if got := asked.Load(); got != maxWaiting {
			t.Errorf("%d questions were read, want %d", got, maxWaiting)
		}
		store.Apply()
		synctest.Wait()
		a.waiting.Wait()
		if got := len(a.replies); got != maxWaiting+10 {
			t.Errorf("%d replies, want %d", got, maxWaiting+10)
		}
		if got, want := a.replies[len(a.replies)-1], "NXDOMAIN after 0s"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A question that finds no seat has waited too when it gets one.
func TestAQuestionWithoutASeatWaitsNoLongerThanOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, newStore(t, "peers.test."))
		for range maxWaiting + 1 {
			a.ask("web.shop.svc.peers.test.")
		}
		a.waiting.Wait()
		if got, want := a.replies[maxWaiting], "SERVFAIL after 2s"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
