package main

import (
	"bytes"
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
		{"--namespace=Bad_NS", `--namespace: "Bad_NS" is not a namespace: want a DNS-1123 label`},
		{"--namespace=a/b", `--namespace: "a/b" is not a namespace: want a DNS-1123 label`},
		{"--namespace=..", `--namespace: ".." is not a namespace: want a DNS-1123 label`},
		{"--namespace=a --all-namespaces", `--all-namespaces: goes not together with --namespace: `},
		{"--all-namespaces=perhaps", `"perhaps"`},
		{"--selector=a=b=c", `--selector: "a=b=c" is not a label selector: `},
		{"--ttl=-1s", `--ttl: "-1s" is not a TTL: want whole seconds`},
		{"--ttl=1500ms", `--ttl: "1500ms" is not a TTL: want whole seconds`},
		{"--ttl=5", `--ttl: "5" is not a TTL: want whole seconds`},
		{"--ttl=600000h", `--ttl: "600000h" is not a TTL: want whole seconds`},
		{"--negative-ttl=x", `--negative-ttl: "x" is not a TTL: want whole seconds`},
		{"--shutdown-delay=-1s", `--shutdown-delay: "-1s" is not a duration: want`},
		{"--log-level=loud", `--log-level: "loud" is not a log level: want debug, info, warn, error`},
		{"--log-format=xml", `--log-format: "xml" is not a log format: want text or json`},
		{"--nonsense=1", `--nonsense: no such flag`},
		{"-x", `-x: no such flag`},
		{"serve", `"serve": peerdns takes flags only`},
		{"--ttl", `flag needs an argument: --ttl`},
	} {
		_, _, faults := parseFlags(strings.Fields(test.args), noEnv)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), test.want) {
			t.Errorf("%s:\n got %v\nwant %s", test.args, faults, test.want)
		}
	}
}

func TestAllFaultsComeAtOnce(t *testing.T) {
	args := []string{"--one", "--ttl", "-1s", "--two=2", "--listen", "x", "--zone", "--looks-like-a-flag", "three"}
	_, _, faults := parseFlags(args, noEnv)
	if len(faults) != 6 {
		t.Errorf("got %d faults, want 6:\n%v", len(faults), faults)
	}
}

func TestDefaultsComeFromTheEnvironment(t *testing.T) {
	env := map[string]string{"CLUSTER_DOMAIN": "Peers.Test", "POD_IP": "2001:db8::5"}
	getenv := func(key string) string { return env[key] }
	c, _, faults := parseFlags(nil, getenv)
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
	c, _, _ = parseFlags([]string{"--zone=other.test", "--listen=192.0.2.1:53", "--listen=[::]:53"}, noEnv)
	if want := []netip.Addr{netip.MustParseAddr("192.0.2.1")}; !slices.Equal(c.AdvertiseAddress, want) {
		t.Errorf("advertised: got %v, want the concrete listen address", c.AdvertiseAddress)
	}
	for _, key := range []string{"CLUSTER_DOMAIN", "POD_IP"} {
		_, _, faults := parseFlags(nil, func(k string) string { return map[bool]string{true: "a b"}[k == key] })
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), key+": ") {
			t.Errorf("bad $%s: got %v, want one fault that names it", key, faults)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for _, test := range []struct {
		config       Config
		ofKubeconfig string
		want         []string
	}{
		{Config{AllNamespaces: true}, "shop", []string{""}},
		{Config{Namespaces: []string{"a", "b"}, Kubeconfig: "k"}, "shop", []string{"a", "b"}},
		{Config{Kubeconfig: "k"}, "shop", []string{"shop"}},
		{Config{Kubeconfig: "k"}, "", []string{"default"}},
		{Config{}, "", []string{"default"}},
	} {
		if got := test.config.namespaces(test.ofKubeconfig); !slices.Equal(got, test.want) {
			t.Errorf("%+v in %q: got %v, want %v", test.config, test.ofKubeconfig, got, test.want)
		}
	}
}

// --print-zone prints the zone part of the watcher's golden cases.
func TestPrintZoneEqualsGolden(t *testing.T) {
	paths, err := filepath.Glob("../../watcher/testdata/golden/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	serial := regexp.MustCompile(`(IN\tSOA\t\S+ \S+) \d+`)
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(objects, archive.Files[0].Data, 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		args := []string{"--print-zone", "--zone=peers.test", "--advertise-address=192.0.2.53", "--manifests=" + objects}
		if code := run(nil, args, noEnv, &stdout, &stderr); code != exitOK {
			t.Fatalf("%s: exit status %d\n%s", path, code, stderr.String())
		}
		for _, file := range archive.Files {
			if file.Name != "zone" {
				continue
			}
			want := serial.ReplaceAllString(string(file.Data), "$1 0")
			if diff := cmp.Diff(want, serial.ReplaceAllString(stdout.String(), "$1 0")); diff != "" {
				t.Errorf("%s (-golden +printed):\n%s", path, diff)
			}
		}
	}
}
