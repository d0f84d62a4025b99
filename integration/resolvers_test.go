package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// manifest writes a slice of n IPv4 peers with hostnames for each of the services, and returns its path.
func manifest(t *testing.T, n int, services ...string) string {
	t.Helper()
	var b strings.Builder
	for _, service := range services {
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata: {name: %[1]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}\n"+
			"ports: [{name: http, port: 8080}]\nendpoints:\n", service)
		for i := range n {
			fmt.Fprintf(&b, "- {addresses: [%s], hostname: %s-%d}\n", v4Of(service, i)[0], service, i)
		}
	}
	path := filepath.Join(t.TempDir(), "slices.yaml")
	must(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// startUnbound runs unbound as a forwarder to peerdns. It minimises names strictly, as nobody else does.
func startUnbound(t *testing.T, upstream string) program {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "unbound.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
server:
	interface: 127.0.0.1@%[1]s
	directory: %[2]q
	chroot: ""
	username: ""
	pidfile: ""
	use-syslog: no
	module-config: "iterator"
	do-not-query-localhost: no
	qname-minimisation: yes
	qname-minimisation-strict: yes
	local-zone: test. nodefault
	local-zone: 198.in-addr.arpa. nodefault
remote-control:
	control-enable: no
stub-zone:
	name: peers.test
	stub-addr: 127.0.0.1@%[3]s
stub-zone:
	name: 198.in-addr.arpa
	stub-addr: 127.0.0.1@%[3]s
`, port, dir, upstream), 0o600))
	return run(t, "unbound", "127.0.0.1:"+port, tool(t, "unbound", "unbound"), "-d", "-p", "-c", config)
}

// startBIND runs BIND as a forwarder to peerdns.
func startBIND(t *testing.T, upstream string) program {
	t.Helper()
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "named.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
options {
	directory %[2]q;
	pid-file none;
	session-keyfile none;
	listen-on port %[1]s { 127.0.0.1; };
	listen-on-v6 { none; };
	recursion yes;
	dnssec-validation no;
	qname-minimization strict;
	max-records-per-type 0;
};
controls { };
zone "peers.test" { type forward; forward only; forwarders { 127.0.0.1 port %[3]s; }; };
zone "198.in-addr.arpa" { type forward; forward only; forwarders { 127.0.0.1 port %[3]s; }; };
`, port, dir, upstream), 0o600))
	return run(t, "named", "127.0.0.1:"+port, tool(t, "named", "bind9"), "-g", "-c", config)
}

// Resolvers with caches in front of us: what they learn of a name and a type holds for no other, TTLs run down, and
// they never have to say SERVFAIL.
func TestResolversInFrontAndTheirCaches(t *testing.T) {
	for name, forwarder := range map[string]func(*testing.T, string) program{"unbound": startUnbound, "BIND": startBIND} {
		t.Run(name, func(t *testing.T) {
			path := manifest(t, 3, "web")
			p := start(t, "--manifests="+path, "--zone=peers.test", "--reverse=198.0.0.0/8", "--negative-ttl=1s")
			p.awaitLog(t, "zones synced")
			front := forwarder(t, p.port)
			awaitAnswer(t, front.addr, "peers.test.")
			f := &peerdns{port: front.addr[strings.LastIndex(front.addr, ":")+1:]}
			ask := func(args ...string) string {
				t.Helper()
				text := f.dig(t, args...)
				if strings.Contains(text, "status: SERVFAIL") {
					t.Errorf("%v: SERVFAIL:\n%s", args, text)
				}
				return text
			}
			const web = "web.shop.svc.peers.test."

			// An empty non-terminal first: who takes it for NXDOMAIN denies the names below.
			expect(t, ask("_tcp."+web, "SRV"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1")
			expect(t, ask("_http._tcp."+web, "SRV"), "ANSWER: 3", `SRV\s+0 33 8080 web-1\.web\.shop\.svc\.peers\.test\.`)
			// So with reverse names, whose tree is deep: each peer is found by its address and by its name.
			expect(t, ask("100.198.in-addr.arpa.", "PTR"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1")
			expect(t, ask("-x", v4Of("web", 1)[0]), `PTR\s+web-1\.web\.shop\.svc\.peers\.test\.`)
			expect(t, ask("-x", "198.100.100.99"), "status: NXDOMAIN")
			// NODATA of one type, and then the others.
			expect(t, ask(web, "AAAA"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `SOA\s`)
			expect(t, ask(web, "TXT"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `SOA\s`)
			expect(t, ask(web, "TYPE666"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `SOA\s`)
			if got := f.short(t, web, "A"); !slices.Equal(got, v4Of("web", 0, 1, 2)) {
				t.Errorf("A: got %v", got)
			}
			expect(t, ask(web, "AAAA"), "status: NOERROR", "ANSWER: 0, AUTHORITY: 1")
			expect(t, ask("stranger."+web, "A"), "status: NXDOMAIN", "AUTHORITY: 1")
			expect(t, ask("web-0."+web, "A"), "status: NOERROR", "ANSWER: 1")

			// TTLs run down, from ours.
			ttl := func() int {
				found := regexp.MustCompile(`(?m)^web\.shop\.svc\.peers\.test\.\s+(\d+)\s+IN\s+A\s`).FindStringSubmatch(ask(web, "A"))
				if found == nil {
					t.Fatal("no A record")
				}
				n, err := strconv.Atoi(found[1])
				must(t, err)
				return n
			}
			if n := ttl(); n > 5 {
				t.Errorf("TTL %d, want at most ours of 5", n)
			}
			for n := ttl(); n > 3; n = ttl() { // a question, and not a sleep, is what time passes with
			}

			// A name that did not exist comes to exist when the negative TTL is over.
			expect(t, ask("new.shop.svc.peers.test.", "A"), "status: NXDOMAIN")
			text, err := os.ReadFile(manifest(t, 3, "web"))
			must(t, err)
			must(t, os.WriteFile(path, []byte(string(text)+strings.ReplaceAll(string(text), "web", "new")), 0o600))
			f.await(t, v4Of("web", 0, 1, 2), "new.shop.svc.peers.test.", "A")
		})
	}
}

// More than a datagram holds: 150 peers come whole through a resolver, which asks again over TCP.
func TestManyPeersThroughAResolver(t *testing.T) {
	for name, forwarder := range map[string]func(*testing.T, string) program{"unbound": startUnbound, "BIND": startBIND} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "--manifests="+manifest(t, 150, "many"), "--zone=peers.test")
			p.awaitLog(t, "zones synced")
			front := forwarder(t, p.port)
			awaitAnswer(t, front.addr, "peers.test.")
			f := &peerdns{port: front.addr[strings.LastIndex(front.addr, ":")+1:]}
			for _, question := range [][]string{
				{"many.shop.svc.peers.test.", "A"}, {"_http._tcp.many.shop.svc.peers.test.", "SRV"},
			} {
				for _, transport := range []string{"+notcp", "+tcp"} {
					expect(t, f.dig(t, append(question, transport)...), "status: NOERROR", "ANSWER: 150,")
				}
			}
		})
	}
}

// What --print-zone prints is a zone for those who read zones for a living.
func TestThePrintedZoneIsOne(t *testing.T) {
	program, err := build()
	must(t, err)
	for _, path := range []string{"../deploy/examples", manifest(t, 300, "web", "many")} {
		zone, err := exec.Command(program, "--manifests="+path, "--zone=peers.test", "--print-zone", "--advertise-address=192.0.2.1").Output()
		must(t, err)
		file := filepath.Join(t.TempDir(), "zone")
		must(t, os.WriteFile(file, zone, 0o600))
		out, err := exec.Command(tool(t, "named-checkzone", "bind9-utils"), "-i", "full", "-k", "fail", "-m", "fail", "-M", "fail", "-n", "fail",
			"-r", "fail", "-S", "fail", "peers.test", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "OK") {
			t.Errorf("named-checkzone of %s: %v\n%s", path, err, out)
		}
	}
}

// kdig and delv look closely at what they get.
func TestKdigAndDelv(t *testing.T) {
	p := start(t, "--manifests=../deploy/examples", "--zone=cluster.local", "--server-id=replica-1")
	p.awaitLog(t, "zones synced")
	kdig := func(args ...string) string {
		t.Helper()
		args = append([]string{"@127.0.0.1", "-p", p.port, "+retry=0", "+timeout=5"}, args...)
		out, err := exec.Command(tool(t, "kdig", "knot-dnsutils"), args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "WARNING") && !strings.Contains(string(out), "recursion") {
			t.Errorf("kdig %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	const web = "web.shop.svc.cluster.local."
	expect(t, kdig(web, "A", "+nsid"), `NSID: 7265706C6963612D31 "replica-1"`, "status: NOERROR")
	cookie := regexp.MustCompile(`COOKIE: ([0-9A-F]{48})`).FindStringSubmatch(kdig(web, "A", "+cookie"))
	if cookie == nil {
		t.Fatal("kdig got no cookie")
	}
	expect(t, kdig(web, "A", "+cookie="+cookie[1]), "COOKIE: "+cookie[1])
	expect(t, kdig(web, "A", "+edns=1"), "BADVERS", "Version: 0")
	expect(t, kdig(web, "A", "+dnssec"), "flags: do;")
	expect(t, kdig(web, "A", "+norec", "+adflag", "+cdflag", "+aaflag", "+zflag"), `Flags: qr aa;`)
	expect(t, p.dig(t, web, "A", "+tcp", "+keepalive"), "TCP[- ]KEEPALIVE: 10.0 secs")
	expect(t, kdig("-t", "TYPE666", web), "status: NOERROR", "ANSWER: 0; AUTHORITY: 1")
	expect(t, kdig("-c", "CH", "id.server.", "TXT"), `"replica-1"`)

	out, err := exec.Command(tool(t, "delv", "bind9-dnsutils"), "@127.0.0.1", "-p", p.port, "-i", "+noroot", web, "A").CombinedOutput()
	must(t, err)
	expect(t, string(out), `^web\.shop\.svc\.cluster\.local\.\s+\d+\s+IN\s+A\s+192\.0\.2\.`)
}
