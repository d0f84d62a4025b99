package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerdns/integration/controlplane"
)

// The path that all else hangs on: pods and a Service on a real API server, slices by the real controller, peerdns with
// no more permission than it needs, and the answers that dig gets.
func TestSlicesBecomeAnswers(t *testing.T) {
	c := startCluster(t)
	admin, ctx := c.Admin(), t.Context()
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.reader(t, "endpointslices"), "--namespace="+namespace, "--shutdown-delay=0s", "--stale-after=0s")
	const web = "web.shop.svc.peers.test."

	expect(t, p.dig(t, web, "A"), "status: NXDOMAIN", `flags: qr aa rd;`, `^peers\.test\.\s+2\s+IN\s+SOA\s+ns\.dns\.peers\.test\.`)
	headless(t, admin, "web")
	for i := range 3 {
		runPod(t, admin, "web", i)
	}
	p.await(t, v4Of("web", 0, 1, 2), web, "A")
	p.await(t, v6Of("web", 0, 1, 2), web, "AAAA")

	t.Run("records over UDP and TCP", func(t *testing.T) {
		for _, transport := range []string{"+notcp", "+tcp"} {
			if got, want := p.short(t, transport, web, "A"), v4Of("web", 0, 1, 2); !slices.Equal(got, want) {
				t.Errorf("%s A: got %v, want %v", transport, got, want)
			}
			if got, want := p.short(t, transport, web, "AAAA"), v6Of("web", 0, 1, 2); !slices.Equal(got, want) {
				t.Errorf("%s AAAA: got %v, want %v", transport, got, want)
			}
			srv := p.dig(t, transport, "_http._tcp."+web, "SRV")
			for i := range 3 {
				v4, v6 := addressesOf("web", i)
				host := fmt.Sprintf(`web-%d\.web\.shop\.svc\.peers\.test\.`, i)
				expect(t, srv, `^_http\._tcp\.web\.shop\.svc\.peers\.test\.\s+5\s+IN\s+SRV\s+0 33 8080 `+host+`$`,
					`^`+host+`\s+5\s+IN\s+A\s+`+v4+`$`, `^`+host+`\s+5\s+IN\s+AAAA\s+`+v6+`$`)
			}
			expect(t, srv, `ANSWER: 3, AUTHORITY: 0, ADDITIONAL: 7`)
			hyphens := p.dig(t, transport, "198-100-100-1.shop.pod.peers.test.", "A")
			expect(t, hyphens, `\sA\s+198\.100\.100\.1$`)
			expect(t, p.dig(t, transport, "2001-DB8-64--1.shop.pod.peers.test.", "AAAA"), "status: NXDOMAIN")
			expect(t, p.dig(t, transport, "2001-DB8-100-0-0--1.shop.pod.peers.test.", "AAAA"), `\sAAAA\s+2001:db8:100::1$`)
			other := p.dig(t, transport, "198-100-100-1.shop.pod.peers.test.", "AAAA")
			expect(t, other, "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `^peers\.test\.\s+2\s+IN\s+SOA\s`)
			stranger := p.dig(t, transport, "stranger.shop.svc.peers.test.", "A")
			expect(t, stranger, "status: NXDOMAIN", "ANSWER: 0, AUTHORITY: 1", `^peers\.test\.\s+2\s+IN\s+SOA\s`)
			expect(t, p.dig(t, transport, "example.test.", "A"), "status: REFUSED")
		}
	})

	t.Run("the cluster changes", func(t *testing.T) {
		runPod(t, admin, "web", 3)
		runPod(t, admin, "web", 4)
		p.await(t, v4Of("web", 0, 1, 2, 3, 4), web, "A")
		for i := 2; i < 5; i++ {
			must(t, controlplane.RemovePod(ctx, admin, namespace, fmt.Sprintf("web-%d", i)))
		}
		p.await(t, v4Of("web", 0, 1), web, "A")
		p.await(t, v6Of("web", 0, 1), web, "AAAA")

		_, err := controlplane.SetPodReady(ctx, admin, namespace, "web-0", false)
		must(t, err)
		p.await(t, v4Of("web", 1), web, "A")
		expect(t, p.dig(t, "web-0."+web, "A"), "status: NXDOMAIN")
		p.awaitLog(t, `peer excluded.*reason=not-ready.*pod=web-0`)
		_, err = controlplane.SetPodReady(ctx, admin, namespace, "web-0", true)
		must(t, err)
		p.await(t, v4Of("web", 0, 1), web, "A")

		must(t, admin.CoreV1().Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
		p.await(t, nil, web, "A")
		expect(t, p.dig(t, web, "A"), "status: NXDOMAIN")
	})

	t.Run("no more permission than list and watch of slices", func(t *testing.T) {
		for _, verb := range []string{"get", "list", "watch"} {
			for _, resource := range []string{"pods", "services", "endpoints", "secrets"} {
				if allowed(ctx, t, admin, "endpointslices", verb, resource) {
					t.Errorf("peerdns' ServiceAccount may %s %s", verb, resource)
				}
			}
		}
	})

	t.Run("the API goes and comes back", func(t *testing.T) {
		headless(t, admin, "web")
		p.await(t, v4Of("web", 0, 1), web, "A")
		must(t, c.Kill(controlplane.APIServer))
		p.awaitLog(t, `source unavailable, the last known peers stay`)
		if got, want := p.short(t, web, "A"), v4Of("web", 0, 1); !slices.Equal(got, want) {
			t.Errorf("while the API is away: got %v, want %v", got, want)
		}
		expect(t, p.dig(t, web, "A"), `EDE: 3 \(Stale Answer\): \(endpointslices in namespace shop: no contact for`)
		expect(t, p.dig(t, "stranger."+web, "A"), `EDE: 19 \(Stale NXDOMAIN Answer\)`)
		must(t, c.Restart(ctx, controlplane.APIServer))
		p.awaitLog(t, `source recovered`)
		runPod(t, admin, "web", 2)
		p.await(t, v4Of("web", 0, 1, 2), web, "A")
		if text := p.dig(t, web, "A"); strings.Contains(text, "EDE") {
			t.Errorf("the API is back, and yet:\n%s", text)
		}
	})

	t.Run("SIGTERM", func(t *testing.T) {
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-p.ended:
			p.ended <- err
			must(t, err)
		case <-time.After(timeLimit):
			t.Fatal("peerdns does not end")
		}
	})
}

// An Erlang node whose resolver asks peerdns gets all of 60 peers: a reply of 512 octets has TC, and then it asks over
// TCP.
func TestErlangGetsEveryPeer(t *testing.T) {
	erl := tool(t, "erl", "erlang-base")
	c := startCluster(t)
	p := start(t, "--zone=peers.test", "--kubeconfig="+c.reader(t, "endpointslices"), "--namespace="+namespace)
	headless(t, c.Admin(), "many")
	pods := make([]int, 60)
	for i := range pods {
		pods[i] = i
		runPod(t, c.Admin(), "many", i)
	}
	const many = "many.shop.svc.peers.test"
	p.await(t, v4Of("many", pods...), many+".", "A")
	p.await(t, v6Of("many", pods...), many+".", "AAAA")
	expect(t, p.dig(t, "+noedns", "+ignore", many+".", "A"), "flags: qr aa tc rd;")

	// Without the first line the host's own resolv.conf comes on top.
	inetrc := filepath.Join(t.TempDir(), "inetrc")
	must(t, os.WriteFile(inetrc, fmt.Appendf(nil, "{resolv_conf, \"\"}.\n{hosts_file, \"\"}.\n{lookup, [dns]}.\n"+
		"{nameserver, {127,0,0,1}, %s}.\n", p.port), 0o600))
	eval := fmt.Sprintf(`
		{ok, A} = inet_res:getbyname(%[1]q, a),
		[io:format("a ~s~n", [inet:ntoa(X)]) || X <- element(6, A)],
		{ok, Srv} = inet_res:getbyname("_http._tcp." ++ %[1]q, srv),
		[io:format("srv ~p ~s~n", [Port, Host]) || {_, _, Port, Host} <- element(6, Srv)],
		[io:format("aaaa ~s~n", [inet:ntoa(X)]) || X <- inet_res:lookup(%[1]q, in, aaaa)],
		halt().`, many)
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, erl, "-noshell", "-eval", eval)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "ERL_INETRC="+inetrc)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("erl: %v\n%s", err, out)
	}
	var want []string
	for _, i := range pods {
		v4, v6 := addressesOf("many", i)
		want = append(want, "a "+v4, "aaaa "+v6, fmt.Sprintf("srv 8080 many-%d.%s", i, many))
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("erl printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The examples in the documents are what dig prints.
func TestExamplesOfTheDocuments(t *testing.T) {
	tool(t, "dig", "bind9-dnsutils")
	p := start(t, "--manifests=../deploy/examples", "--zone=cluster.local", "--answer-order=sorted")
	p.awaitLog(t, "zones synced")
	examples := 0
	for _, document := range []string{"../README.md", "../docs/peer-sets.md"} {
		text, err := os.ReadFile(document)
		must(t, err)
		for _, block := range strings.Split(string(text), "```")[1:] {
			for _, example := range strings.Split(block, "\n$ ")[1:] {
				command, want, _ := strings.Cut(example, "\n")
				if !strings.HasPrefix(command, "dig ") {
					continue
				}
				examples++
				out, err := exec.Command("sh", "-c", strings.Replace(command, "-p 5300", "+nocmd -p "+p.port, 1)).CombinedOutput()
				must(t, err)
				if got := string(out); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("%s: %s\nthe document shows\n%s\ndig prints\n%s", document, command, want, got)
				}
			}
		}
	}
	if examples < 5 {
		t.Errorf("got %d examples, want all 5", examples)
	}
}
