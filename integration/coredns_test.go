package integration

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"peerdns/integration/controlplane"
)

// buildCoreDNS builds CoreDNS once for all tests. go build knows when there is nothing to do.
var buildCoreDNS = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs(filepath.Join(".bin", "coredns"))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir = "coredns"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build CoreDNS: %w\n%s", err, out)
	}
	return program, nil
})

// freePort returns a port of 127.0.0.1 that was free for UDP and TCP a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	for range 10 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		addr := listener.Addr().String()
		conn, err := net.ListenPacket("udp", addr)
		must(t, listener.Close())
		if err == nil {
			must(t, conn.Close())
			_, port, err := net.SplitHostPort(addr)
			must(t, err)
			return port
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return ""
}

// program is another server under test.
type program struct {
	name string
	addr string // for DNS
	log  *bytes.Buffer
}

// run starts a program that runs until the test ends.
func run(t *testing.T, name, addr string, command ...string) program {
	t.Helper()
	p := program{name: name, addr: addr, log: new(bytes.Buffer)}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		err := cmd.Wait()
		if t.Failed() {
			t.Logf("%s ended: %v, its log:\n%s", name, err, p.log)
		}
	})
	return p
}

// awaitReady waits until a program says by HTTP that it is ready.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	deadline, again := time.After(timeLimit), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		if reply, err := http.Get(url); err == nil {
			must(t, reply.Body.Close())
			if reply.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s is not ready", url)
		}
	}
}

func startCoreDNS(t *testing.T, kubeconfig string) program {
	t.Helper()
	coredns, err := buildCoreDNS()
	must(t, err)
	port, readyPort := freePort(t), freePort(t)
	corefile := filepath.Join(t.TempDir(), "Corefile")
	must(t, os.WriteFile(corefile, fmt.Appendf(nil, `
peers.test:%s {
	bind 127.0.0.1
	errors
	ready 127.0.0.1:%s
	kubernetes peers.test {
		kubeconfig %s
		pods verified
		ttl 5
	}
}
`, port, readyPort, kubeconfig), 0o600))
	p := run(t, "CoreDNS", "127.0.0.1:"+port, coredns, "-conf", corefile)
	awaitReady(t, "http://127.0.0.1:"+readyPort+"/ready")
	awaitAnswer(t, p.addr, "peers.test.") // its sockets come after that
	return p
}

// awaitAnswer waits until a server has a SOA record at a name.
func awaitAnswer(t *testing.T, addr, name string) {
	t.Helper()
	deadline, again := time.After(timeLimit), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		reply, err := dns.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeSOA), addr)
		if err == nil && len(reply.Answer) > 0 {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s has no SOA at %s: %v", addr, name, err)
		}
	}
}

// asker asks one server over both transports.
type asker struct {
	addr  string
	conns map[string]*dns.Conn
}

func newAsker(t *testing.T, addr string) *asker {
	t.Helper()
	a := &asker{addr: addr, conns: map[string]*dns.Conn{}}
	for _, network := range []string{"udp", "tcp"} {
		a.dial(t, network)
	}
	t.Cleanup(func() {
		for _, conn := range a.conns {
			_ = conn.Close() // the server may have closed it
		}
	})
	return a
}

func (a *asker) dial(t *testing.T, network string) {
	t.Helper()
	conn, err := dns.DialTimeout(network, a.addr, 5*time.Second)
	must(t, err)
	conn.UDPSize = dns.MaxMsgSize
	a.conns[network] = conn
}

// ask returns the reply to a question.
func (a *asker) ask(t *testing.T, network string, m *dns.Msg) *dns.Msg {
	t.Helper()
	client := &dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := client.ExchangeWithConn(m, a.conns[network])
	if err != nil { // a server may close a connection on which it was asked often
		a.dial(t, network)
		reply, _, err = client.ExchangeWithConn(m, a.conns[network])
	}
	if err != nil {
		t.Fatalf("%s over %s: %v", m.Question[0].String(), network, err)
	}
	return reply
}

// text prints what two servers should agree on: not the order of records, nor serial numbers, nor the case of letters,
// which both take from the question where they compress names.
func text(m *dns.Msg) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s aa=%t tc=%t ra=%t rd=%t\n", dns.RcodeToString[m.Rcode], m.Authoritative, m.Truncated, m.RecursionAvailable, m.RecursionDesired)
	for i, section := range [...][]dns.RR{m.Answer, m.Ns, m.Extra} {
		var lines []string
		for _, rr := range section {
			if soa, ok := rr.(*dns.SOA); ok {
				soa.Serial = 0
			}
			if rr.Header().Rrtype != dns.TypeOPT {
				lines = append(lines, strings.ToLower(strings.ReplaceAll(rr.String(), "\t", " ")))
			}
		}
		slices.Sort(lines)
		for _, line := range slices.Compact(lines) {
			fmt.Fprintf(&b, "%s %s\n", [...]string{"answer", "authority", "additional"}[i], line)
		}
	}
	return b.String()
}

// difference is a kind of question to which CoreDNS has another answer. docs/coredns-differences.md says of each, by its
// title, why ours is right.
type difference struct {
	title    string
	question string // matches name and type, as "web.shop.svc.peers.test. A", in lower case
	ours     string // matches our reply
	theirs   string // matches theirs
}

const (
	nodata   = `^NOERROR .*\nauthority peers.test. 5 in soa .*\n$`
	nxdomain = `^NXDOMAIN .*\nauthority peers.test. 5 in soa .*\n$`
)

var differences = []difference{
	{"SOA of a name that does not exist", ` SOA$`, nxdomain, nodata},
	{"TXT of a name that exists", ` TXT$`, nodata, nxdomain},
	{"other types of dns-version", `^dns-version\.peers\.test\. `, nodata, nxdomain},
	{"dns and ns.dns", `^(ns\.)?dns\.peers\.test\. `, nodata, nxdomain},
	{"the name server and its address", `^(ns\.dns\.)?peers\.test\. (NS|A)$`, `^NOERROR .*\nanswer .*\n(additional .*\n)?$`, `^(NOERROR|NXDOMAIN) .*\nauthority .*\n$`},
	{"SRV of a pod's name", `^[^.]+\.shop\.pod\.peers\.test\. SRV$`, nodata, `^NOERROR .*\nanswer \S+ 5 in srv 0 100 0 .*\nadditional .*\n$`},
	{"names below a pod's", `^[^.]+\.[0-9a-f-]+\.shop\.pod\.peers\.test\. `, nxdomain, `^NOERROR `},
	{"_tcp and _udp of a service", `^_(tcp|udp)\.\w+\.shop\.svc\.peers\.test\. `, nodata, nxdomain},
	{"addresses of a port's name", `^_\w+\._(tcp|udp)\.\w+\.shop\.svc\.peers\.test\. (A|AAAA)$`, nodata, `^NOERROR .*\nanswer `},
	{"_nodes", `^_nodes\.\w+\.shop\.svc\.peers\.test\. `, `^NOERROR `, nxdomain},
	{"namespaces without a peer", `^svc\.svc\.peers\.test\. `, nxdomain, nodata},
}

// srvWeight matches the weight of an SRV record: CoreDNS counts addresses for it, and so gives a dual-stack peer half.
var srvWeight = regexp.MustCompile(`( in srv 0) \d+ `)

// CoreDNS' kubernetes plugin reads the same API. Thousands of questions, and each difference is in the list.
func TestAnswersAreThoseOfCoreDNS(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "svc"}}, metav1.CreateOptions{})
	must(t, err)
	twoPorts := func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(8080)},
			{Name: "sip", Port: 5060, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(5060)},
			{Name: "sips", Port: 5060, TargetPort: intstr.FromInt32(5060)},
		}
	}
	headless(t, admin, "web", twoPorts)
	headless(t, admin, "front", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 9000, TargetPort: intstr.FromInt32(9000)}}
	})
	headless(t, admin, "db", func(s *corev1.Service) { s.Spec.Ports = nil })
	headless(t, admin, "batch")
	for i := range 3 {
		runPod(t, admin, "web", i)
		runPod(t, admin, "db", i)
		_, err := controlplane.RunPod(ctx, admin, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("front-", i), Labels: map[string]string{"app": "front"}},
			Spec:       corev1.PodSpec{NodeName: node},
		}, addressesOfBoth("front", i)...)
		must(t, err)
	}
	runPod(t, admin, "batch", 0)
	_, err = controlplane.SetPodReady(ctx, admin, namespace, "batch-0", false)
	must(t, err)
	p := start(t, "--zone=peers.test", "--negative-ttl=5s", "--kubeconfig="+c.AdminKubeconfig(), "--all-namespaces")
	for _, service := range []string{"web", "db", "front"} {
		p.await(t, v6Of(service, 0, 1, 2), service+".shop.svc.peers.test.", "AAAA")
	}
	p.awaitLog(t, `peer excluded.*reason=not-ready.*pod=batch-0`)
	coredns := startCoreDNS(t, c.AdminKubeconfig())
	ours, theirs := newAsker(t, "127.0.0.1:"+p.port), newAsker(t, coredns.addr)

	used := map[int]int{}
	asked, weights := 0, 0
	for _, name := range namesToAsk() {
		for _, rrtype := range []uint16{
			dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeNS, dns.TypeSOA, dns.TypePTR, dns.TypeCNAME, dns.TypeMX,
			dns.TypeHTTPS, dns.TypeDS, dns.TypeDNSKEY, 666,
		} {
			for _, network := range []string{"udp", "tcp"} {
				m := new(dns.Msg).SetQuestion(name, rrtype)
				m.SetEdns0(1232, false)
				asked++
				got, want := text(ours.ask(t, network, m)), text(theirs.ask(t, network, m))
				if got == want {
					continue
				}
				question := strings.ToLower(name) + " " + dns.Type(rrtype).String()
				if srvWeight.ReplaceAllString(got, "$1 w ") == srvWeight.ReplaceAllString(want, "$1 w ") {
					weights++
					continue
				}
				i := slices.IndexFunc(differences, func(d difference) bool {
					return matches(d.question, question) && matches(d.ours, got) && matches(d.theirs, want)
				})
				if i < 0 {
					t.Errorf("%s over %s: peerdns says\n%sCoreDNS says\n%s", question, network, got, want)
					continue
				}
				used[i]++
			}
		}
	}
	t.Logf("%d questions; other weights: %d", asked, weights)
	list, err := os.ReadFile("../docs/coredns-differences.md")
	must(t, err)
	for i, d := range differences {
		t.Logf("%s: %d", d.title, used[i])
		if used[i] == 0 || weights == 0 {
			t.Errorf("no question shows the difference of %s", d.title)
		}
		if !bytes.Contains(list, []byte("**"+d.title+"**")) {
			t.Errorf("docs/coredns-differences.md does not have %s", d.title)
		}
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// namesToAsk are names that exist, and for each those beside, above and below it.
func namesToAsk() []string {
	var exist []string
	add := func(names ...string) { exist = append(exist, names...) }
	add("peers.test.", "svc.peers.test.", "pod.peers.test.", "dns.peers.test.", "ns.dns.peers.test.", "dns-version.peers.test.",
		"shop.svc.peers.test.", "shop.pod.peers.test.", "svc.svc.peers.test.", "default.svc.peers.test.",
		"batch.shop.svc.peers.test.", "batch-0.batch.shop.svc.peers.test.")
	for _, service := range []string{"web", "front", "db"} {
		base := service + ".shop.svc.peers.test."
		add(base)
		for _, label := range []string{"_tcp", "_udp", "_http._tcp", "_sip._udp", "_sips._tcp", "_http._udp", "_sip._tcp", "_nodes"} {
			add(label + "." + base)
		}
		for i := range 3 {
			if service != "front" {
				add(fmt.Sprintf("%s-%d.%s", service, i, base))
			}
			for _, address := range addressesOfBoth(service, i) {
				add(addressLabel(address)+"."+base, addressLabel(address)+".shop.pod.peers.test.")
			}
		}
	}
	seen := map[string]bool{}
	var names []string
	for _, name := range exist {
		first, rest, _ := strings.Cut(name, ".")
		for _, near := range []string{
			name, strings.ToUpper(name), rest, "x." + name, "*." + name, first + "x." + rest, "x" + first + "." + rest, "_" + first + "." + rest,
		} {
			if near != "" && !seen[near] && strings.HasSuffix(strings.ToLower(near), "peers.test.") {
				seen[near] = true
				names = append(names, near)
			}
		}
	}
	return names
}
