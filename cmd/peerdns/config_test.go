package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

func noEnv(string) string { return "" }

// Each bad value of each setting has its line, which names the setting and what would be right.
func TestFaultsOfConfiguration(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--listen=nonsense", `--listen: "nonsense" is not an IP address and a port: want`},
		{"--listen=localhost:53", `--listen: "localhost:53" is not an IP address and a port: want`},
		{"--listen=:65536", `--listen: ":65536" is not an IP address and a port: want`},
		{"--listen=127.0.0.1", `--listen: "127.0.0.1" is not an IP address and a port: want`},
		{"--listen=127.0.0.1:53 --listen=127.0.0.1:53", `--listen: 127.0.0.1:53 is given twice`},
		{"--listen=:53 --listen=:53", `--listen: :53 is given twice`},
		{"--admin-listen=", `--admin-listen: "" is neither an IP address and a port nor off: want`},
		{"--admin-listen=localhost:9153", `--admin-listen: "localhost:9153" is neither an IP address and a port nor off: want`},
		{"--zone=a..b", `--zone: "a..b" is not a domain name: want`},
		{"--zone=", `--zone: "" is not a domain name: want`},
		{"--zone=.", `--zone: "." is the root of all names: want`},
		{"--zone=a_b.test", `--zone: "a_b.test" has the label "a_b": want`},
		{`--zone=a\.b.test`, `--zone: "a\\.b.test" has the label "a\\": want`},
		{"--zone=" + strings.Repeat("a.", 122) + "test", `is too long: `},
		{"--zone=peers.test --zone=Peers.Test.", `--zone: peers.test. is given twice`},
		{"--advertise-address=example", `--advertise-address: "example" is not an IP address: want`},
		{"--advertise-address=fe80::1%eth0", `--advertise-address: "fe80::1%eth0" is not an IP address: want`},
		{"--advertise-address=0.0.0.0", `--advertise-address: "0.0.0.0" is no address of one host: want`},
		{"--manifests=", `--manifests: is empty`},
		{"--kubeconfig=", `--kubeconfig: is empty`},
		{"--kubeconfig=k --manifests=m", `--kubeconfig: goes not together with --manifests: `},
		{"--context=", `--context: is empty`},
		{"--context=c", `--context: "c" is a context of no file: give --kubeconfig too`},
		{"--kube-api=", `--kube-api: "" is not a URL with https`},
		{"--kube-api=http://192.0.2.1", `--kube-api: "http://192.0.2.1" is not a URL with https, and tokens are sent over nothing else: want for instance https://192.0.2.1:6443`},
		{"--kube-api=192.0.2.1:6443", `--kube-api: is not a URL: want for instance https://192.0.2.1:6443`},
		{"--kube-api=https://", `--kube-api: "https://" has no host: want`},
		{"--kube-api=https://u:p@api.test", `--kube-api: has a user: credentials belong in`},
		{"--kube-api=https://api.test?x", `--kube-api: "https://api.test?x" has more than host, port and path: want`},
		{"--kube-api=https://api.test --kubeconfig=k", `--kube-api: goes not together with --kubeconfig`},
		{"--kube-api=https://api.test --manifests=m", `--kube-api: goes not together with --manifests`},
		{"--service-account-path=", `--service-account-path: is empty`},
		{"--service-account-path=s --kubeconfig=k", `--service-account-path: goes not together with --kubeconfig`},
		{"--service-account-path=s --manifests=m", `--service-account-path: goes not together with --manifests`},
		{"--trusted-peer-cert-file=", `--trusted-peer-cert-file: is empty`},
		{"--trusted-peer-cert-file=t --manifests=m", `--trusted-peer-cert-file: goes not together with --manifests`},
		{"--namespace=Bad_NS", `--namespace: "Bad_NS" is not a namespace: want a DNS-1123 label`},
		{"--namespace=a/b", `--namespace: "a/b" is not a namespace: want a DNS-1123 label`},
		{"--namespace=..", `--namespace: ".." is not a namespace: want a DNS-1123 label`},
		{"--namespace=a --all-namespaces", `--all-namespaces: goes not together with namespace: `},
		{"--all-namespaces=perhaps", `--all-namespaces: "perhaps" is neither true nor false`},
		{"--source=nodes", `--source: "nodes" is not a source: want endpointslices, pods or endpoints`},
		{"--source=pods --service=Web", `--service: "Web" is not a service: want`},
		{"--service=web", `--service: goes with source pods only`},
		{"--source=endpoints --service-label=app", `--service-label: goes with source pods only`},
		{"--hostname-annotation=h", `--hostname-annotation: goes with source pods only`},
		{"--nodename-annotation=n", `--nodename-annotation: goes with source pods only`},
		{"--source=pods --service-label=a/b/c", `--service-label: "a/b/c" is not the key of a label or annotation: want`},
		{"--source=pods --hostname-annotation=-", `--hostname-annotation: "-" is not the key of a label or annotation: want`},
		{"--source=pods --nodename-annotation=", `--nodename-annotation: "" is not the key of a label or annotation: want`},
		{"--port=epmd", `--port: "epmd" is not a port: want name:number`},
		{"--port=Epmd:4369", `--port: "Epmd:4369" has no legal name`},
		{"--port=80:80", `--port: "80:80" has no legal name`},
		{"--port=sixteen-letters-:1", `--port: "sixteen-letters-:1" has no legal name`},
		{"--port=epmd:0", `--port: "epmd:0" has no number from 1 to 65535`},
		{"--port=epmd:65536", `--port: "epmd:65536" has no number from 1 to 65535`},
		{"--port=epmd:4369/icmp", `--port: "epmd:4369/icmp" has no protocol tcp, udp or sctp`},
		{"--port=epmd:4369/", `--port: "epmd:4369/" has no protocol tcp, udp or sctp`},
		{"--pinned-addresses=", `--pinned-addresses: is an empty list`},
		{"--pinned-addresses=10.0.0.0/8,", `--pinned-addresses: "10.0.0.0/8," has a comma too many`},
		{"--pinned-addresses=10.0.0.1", `--pinned-addresses: "10.0.0.1" is not a CIDR: want`},
		{"--pinned-addresses=10.0.0.0/33", `--pinned-addresses: "10.0.0.0/33" is not a CIDR: want`},
		{"--pinned-addresses=.svc.cluster.local", `--pinned-addresses: ".svc.cluster.local" is not a CIDR: want`},
		{"--pinned-addresses=10.0.0.1/8", `--pinned-addresses: "10.0.0.1/8" has bits set after its length: want 10.0.0.0/8`},
		{"--pinned-addresses=::ffff:10.0.0.0/104", `is an IPv4-mapped range: want it as IPv4`},
		{"--max-udp-size=511", `--max-udp-size: "511" is not a size of a UDP reply: want 512 to 65507 octets`},
		{"--max-udp-size=65508", `--max-udp-size: "65508" is not a size of a UDP reply: want`},
		{"--max-udp-size=1k", `--max-udp-size: "1k" is not a size of a UDP reply: want`},
		{"--answer-order=random", `--answer-order: "random" is not an order of answers: want rotate or sorted`},
		{"--reverse=10.0.0.0", `--reverse: "10.0.0.0" is not a CIDR: want`},
		{"--reverse=10.0.0.1/8", `--reverse: "10.0.0.1/8" has bits set after its length: want 10.0.0.0/8`},
		{"--reverse=::ffff:10.0.0.0/104", `--reverse: "::ffff:10.0.0.0/104" is an IPv4-mapped range: want it as IPv4`},
		{"--listen-tls=x", `--listen-tls: "x" is not an IP address and a port: want`},
		{"--listen-tls=:853 --tls-key-file=k", `--tls-cert-file: is missing: --listen-tls needs a certificate and its key`},
		{"--listen-tls=:853 --tls-cert-file=c", `--tls-key-file: is missing: --listen-tls needs a certificate and its key`},
		{"--tls-cert-file=c", `--tls-cert-file: "c" is for TLS only: give --listen-tls too`},
		{"--tls-key-file=", `--tls-key-file: is empty`},
		{"--listen-tls=:53 --listen=:53 --tls-cert-file=c --tls-key-file=k", `--listen-tls: :53 is given twice`},
		{"--allow=", `--allow: "" is not a CIDR: want`},
		{"--allow=10.0.0.1", `--allow: "10.0.0.1" is not a CIDR: want`},
		{"--allow=10.0.0.1/8", `--allow: "10.0.0.1/8" has bits set after its length: want 10.0.0.0/8`},
		{"--server-id=" + strings.Repeat("x", 65), `is too long: want at most 64 octets`},
		{"--config=nowhere.yaml", `--config: open nowhere.yaml: no such file or directory`},
		{"--servise=web", `--servise: no such flag (did you mean service?), see --help`},
		{"--selector=a=b=c", `--selector: "a=b=c" is not a label selector: `},
		{"--ttl=-1s", `--ttl: "-1s" is not a TTL: want whole seconds`},
		{"--ttl=1500ms", `--ttl: "1500ms" is not a TTL: want whole seconds`},
		{"--ttl=5", `--ttl: "5" is not a TTL: want whole seconds`},
		{"--ttl=600000h", `--ttl: "600000h" is not a TTL: want whole seconds`},
		{"--negative-ttl=x", `--negative-ttl: "x" is not a TTL: want whole seconds`},
		{"--stale-after=x", `--stale-after: "x" is not a duration: want`},
		{"--verify-interval=-1s", `--verify-interval: "-1s" is not a duration: want`},
		{"--snapshot-file=", `--snapshot-file: is empty`},
		{"--snapshot-file=f --snapshot-max-age=0s", `--snapshot-max-age: "0s" is not an age: want more than 0s, as 24h or 30m`},
		{"--snapshot-file=f --snapshot-max-age=1d", `--snapshot-max-age: "1d" is not an age: want`},
		{"--snapshot-max-age=1h", `--snapshot-max-age: 1h0m0s is of no file: give --snapshot-file too`},
		{"--shutdown-delay=-1s", `--shutdown-delay: "-1s" is not a duration: want`},
		{"--log-level=loud", `--log-level: "loud" is not a log level: want debug, info, warn, error`},
		{"--log-format=xml", `--log-format: "xml" is not a log format: want text or json`},
		{"--nonsense=1", `--nonsense: no such flag`},
		{"-x", `-x: no such flag`},
		{"serve", `"serve": peerdns takes flags only`},
		{"--ttl", `flag needs an argument: --ttl`},
	} {
		_, _, faults := parseConfig(strings.Fields(test.args), noEnv)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), test.want) {
			t.Errorf("%s:\n got %v\nwant %s", test.args, faults, test.want)
		}
	}
}

func TestAllFaultsComeAtOnce(t *testing.T) {
	args := []string{"--one", "--ttl", "-1s", "--two=2", "--listen", "x", "--zone", "--looks-like-a-flag", "three"}
	_, _, faults := parseConfig(args, noEnv)
	if len(faults) != 6 {
		t.Errorf("got %d faults, want 6:\n%v", len(faults), faults)
	}
}

func TestDefaultsComeFromTheEnvironment(t *testing.T) {
	env := map[string]string{"CLUSTER_DOMAIN": "Peers.Test", "POD_IP": "2001:db8::5"}
	getenv := func(key string) string { return env[key] }
	c, _, faults := parseConfig(nil, getenv)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := c.Zones[0].String(); got != "peers.test." {
		t.Errorf("zone: got %s, want $CLUSTER_DOMAIN", got)
	}
	if want := []netip.Addr{netip.MustParseAddr("2001:db8::5")}; !slices.Equal(c.AdvertiseAddress, want) {
		t.Errorf("advertised: got %v, want $POD_IP", c.AdvertiseAddress)
	}
	if got := formatListen(c.Listen[0]); got != ":53" {
		t.Errorf("listen: got %s, want :53", got)
	}
	env = map[string]string{"KUBERNETES_SERVICE_HOST": "2001:db8::1", "KUBERNETES_SERVICE_PORT": "443"}
	if c, _, faults := parseConfig(nil, getenv); len(faults) > 0 || c.KubeAPI != "https://[2001:db8::1]:443" {
		t.Errorf("API: got %q, %v; want that of the cluster", c.KubeAPI, faults)
	}
	if c, _, faults := parseConfig([]string{"--kube-api=https://api.test"}, getenv); len(faults) > 0 || c.KubeAPI != "https://api.test" {
		t.Errorf("API: got %q, %v; want that of the flag", c.KubeAPI, faults)
	}
	c, _, _ = parseConfig([]string{"--zone=other.test", "--listen=192.0.2.1:53", "--listen=[::]:53"}, noEnv)
	if want := []netip.Addr{netip.MustParseAddr("192.0.2.1")}; !slices.Equal(c.AdvertiseAddress, want) {
		t.Errorf("advertised: got %v, want the concrete listen address", c.AdvertiseAddress)
	}
	for _, key := range []string{"CLUSTER_DOMAIN", "POD_IP"} {
		_, _, faults := parseConfig(nil, func(k string) string { return map[bool]string{true: "a b"}[k == key] })
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), key+": ") {
			t.Errorf("bad $%s: got %v, want one fault that names it", key, faults)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for _, test := range []struct {
		args         string
		ofKubeconfig string
		want         []string
	}{
		{"--kubeconfig=k --all-namespaces", "shop", []string{""}},
		{"--kubeconfig=k --namespace=b --namespace=a --namespace=b", "shop", []string{"a", "b"}},
		{"--kubeconfig=k", "shop", []string{"shop"}},
		{"--kubeconfig=k", "", []string{"default"}},
		{"", "", []string{"default"}},
		{"--manifests=m", "", []string{""}},
		{"--manifests=m --namespace=a", "", []string{"a"}},
	} {
		config, _, faults := parseConfig(strings.Fields(test.args), noEnv)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got := config.watched(test.ofKubeconfig)[0].Namespaces; !slices.Equal(got, test.want) {
			t.Errorf("%s in %q: got %v, want %v", test.args, test.ofKubeconfig, got, test.want)
		}
	}
}

// Each file of the archive is a configuration file and the faults that it has.
func TestFaultsOfTheFile(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/files/config.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, file := range archive.Files {
		text, want, _ := strings.Cut(string(file.Data), "# faults:\n")
		if err := os.WriteFile("peerdns.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, faults := parseConfig([]string{"--config=peerdns.yaml"}, noEnv)
		var got strings.Builder
		for _, fault := range faults {
			got.WriteString("# " + fault.Error() + "\n")
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file.Name, diff)
		}
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peerdns.yaml")
	if err := os.WriteFile(path, []byte("ttl: 7s\nnegative-ttl: 8s\nzone: [a.test, b.test]\nall-namespaces: true\n"+
		"pinned-addresses: [10.0.0.0/8, 192.0.2.0/24]\nport: epmd:4369\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, faults := parseConfig([]string{"--ttl=9s", "--config", path, "--zone=c.test"}, noEnv)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if c.TTL != 9 || c.NegativeTTL != 8 || len(c.Zones) != 1 || c.Zones[0].String() != "c.test." {
		t.Errorf("got TTLs %d and %d, zones %v; want 9 and c.test. from the flags, 8 from the file", c.TTL, c.NegativeTTL, c.Zones)
	}
	set := c.Sets[0]
	if !set.AllNamespaces || len(set.Pinned) != 2 || len(set.Ports) != 1 {
		t.Errorf("got set %+v, want what the file says", set)
	}
}

func TestTheLastOfSeveralValuesCounts(t *testing.T) {
	c, _, faults := parseConfig([]string{"--ttl=soon", "--ttl=9s"}, noEnv)
	if len(faults) > 0 || c.TTL != 9 {
		t.Errorf("got a TTL of %d, %v; want 9, whatever came before", c.TTL, faults)
	}
}

func TestPeerSetsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peerdns.yaml")
	if err := os.WriteFile(path, []byte("peer-sets:\n- {name: all, source: pods, namespace: [b, a], service: web-all}\n"+
		"- {all-namespaces: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, faults := parseConfig([]string{"--config=" + path}, noEnv)
	if len(faults) > 0 || len(c.Sets) != 2 {
		t.Fatalf("got %d sets, %v; want 2", len(c.Sets), faults)
	}
	first, second := c.watched("")[0], c.watched("")[1]
	if first.Set != "all" || first.Kind != "pods" || first.Service != "web-all" || !slices.Equal(first.Namespaces, []string{"a", "b"}) {
		t.Errorf("first set: got %+v", first)
	}
	if second.Set != "set-2" || second.Kind != "endpointslices" || !slices.Equal(second.Namespaces, []string{""}) {
		t.Errorf("second set: got %+v", second)
	}
}

// The configurations that the documents show are ones.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	text, err := os.ReadFile("../../docs/peer-sets.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("got %d configurations, want all 2", len(blocks))
	}
	for _, block := range blocks {
		config, _, _ := strings.Cut(block, "```")
		path := filepath.Join(t.TempDir(), "peerdns.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, faults := parseConfig([]string{"--config", path}, noEnv); len(faults) > 0 {
			t.Errorf("%v in\n%s", faults, config)
		}
	}
}

// What the documents say of moving over names flags that exist.
func TestFlagsOfTheDocumentsExist(t *testing.T) {
	s := &settings{}
	new(Config).bind(s, newPeerSet("", ""))
	for _, document := range []string{"../../README.md", "../../docs/moving-over.md", "../../docs/peer-sets.md", "../../docs/dns.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile("[ `]--([a-z-]+[a-z])").FindAllStringSubmatch(string(text), -1) {
			if s.lookup(flag[1]) == nil {
				t.Errorf("%s: --%s does not exist", document, flag[1])
			}
		}
	}
}
