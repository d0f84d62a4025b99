package watcher

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const goodSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
`

const goodPod = `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, annotations: {h: "$.spec.hostname", n: "$..name"}}
spec: {hostname: web-0, subdomain: web, containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
status: {podIP: 192.0.2.1, podIPs: [{ip: 192.0.2.1}, {ip: "2001:db8::1"}]}
`

const goodEndpoints = `apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: shop}
subsets: [{addresses: [{ip: 192.0.2.1, hostname: web-0}], notReadyAddresses: [{ip: 192.0.2.2}], ports: [{port: 80}]}]
`

func TestDecodeManifestsTakesEveryForm(t *testing.T) {
	const json = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"j"},"endpoints":[]}`
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"one object":                    {goodSlice, "shop/a"},
		"marker first":                  {"---\n" + goodSlice, "shop/a"},
		"marker with comment":           {"--- # first\n" + goodSlice, "shop/a"},
		"document on the marker's line": {"--- " + json + "\n", "default/j"},
		"Windows line ends":             {strings.ReplaceAll("---\n"+goodSlice+"---\n"+goodSlice, "\n", "\r\n"), "shop/a shop/a"},
		"several documents":             {goodSlice + "---\n" + json + "\n---\n" + goodSlice, "shop/a default/j shop/a"},
		"JSON":                          {json, "default/j"},
		"JSON after a byte order mark":  {"\ufeff" + json, "default/j"},
		"several JSON values":           {json + "\n" + json, "default/j default/j"},
		"a List":                        {`{"apiVersion":"v1","kind":"List","items":[` + json + "," + json + `]}`, "default/j default/j"},
		"a list of its kind":            {`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSliceList","items":[` + json + `]}`, "default/j"},
		"an empty List":                 {"apiVersion: v1\nkind: List\nitems: []\n", ""},
		"a List in a List":              {`{"kind":"List","items":[{"kind":"List","items":[` + json + `]}]}`, "default/j"},
		"other kinds":                   {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", ""},
		"a marker inside a text":        {"kind: ConfigMap\ndata:\n  text: |\n    ---\n    kind: EndpointSlice\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := decodeManifests("f.yaml", []byte(test.text))
			var got []string
			for _, o := range objects {
				got = append(got, objectKey(o.object.(metav1.Object)))
			}
			if err != nil || strings.Join(got, " ") != test.want {
				t.Errorf("got %q, %v; want %q", strings.Join(got, " "), err, test.want)
			}
		})
	}
}

func TestDecodeManifestsNamesFileLineAndObject(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                     {"", "f.yaml:1: the file is empty: want objects, or a List without items"},
		"comments only":               {"# nothing yet\n---\n# nor here\n", "f.yaml:1: the file is empty: want objects"},
		"text after JSON":             {`{"kind":"Pod"} garbage`, "f.yaml:1: not YAML: "},
		"a brace too many":            {`{"kind":"Pod"}}`, "f.yaml:1: not YAML: "},
		"a comma after JSON":          {`{"kind":"Pod"},`, "f.yaml:1: not YAML: "},
		"text after a document's end": {goodSlice + "...\n" + goodSlice, "f.yaml:7: not YAML: text after the end of the document: want --- before another"},
		"white space":                 {" \n\t\n", "f.yaml:1: the file is empty: want objects"},
		"broken YAML in the second document": {
			goodSlice + "---\nkind: EndpointSlice\nmetadata: {name: b\n", "f.yaml:9: not YAML: ",
		},
		"a tab": {
			"kind: EndpointSlice\nmetadata:\n\tname: b\n", "f.yaml:3: not YAML: found character that cannot start any token",
		},
		"a key twice": {
			goodSlice + "addressType: IPv6\n", `f.yaml:6: not YAML: key "addressType" already set in map`,
		},
		"broken JSON": {
			"{\n  \"kind\": \"List\",\n  \"items\": [}\n", "f.yaml:3: not YAML: ",
		},
		"text": {
			"\nhello\n", "f.yaml:2: object: ",
		},
		"no kind": {
			goodSlice + "---\n\nmetadata: {name: b}\n", "f.yaml:8: object b: no kind: want an object as kubectl prints it",
		},
		"a wrong type": {
			goodSlice + "---\n" + strings.Replace(goodSlice, "[192.0.2.1]", "192.0.2.1", 1),
			"f.yaml:7: EndpointSlice shop/a: endpoints.addresses is a string: want slice",
		},
		"a wrong type in a List": {
			"kind: List\nitems:\n- kind: Service\n- apiVersion: discovery.k8s.io/v1\n  kind: EndpointSlice\n" +
				"  metadata: {name: b}\n  ports: [{port: web}]\n",
			"f.yaml:4: EndpointSlice b: ports.port is a string: want int32",
		},
		"a wrong type in the second JSON value": {
			"{\"kind\":\"Service\"}\n{\"kind\":\"EndpointSlice\",\n\"apiVersion\":\"discovery.k8s.io/v1\",\"metadata\":{\"name\":7}}\n",
			"f.yaml:2: object: metadata.name is a number: want string",
		},
		"no name": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n", "f.yaml:1: EndpointSlice: no metadata.name",
		},
		"an old version": {
			"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: b, namespace: shop}\n",
			`f.yaml:1: EndpointSlice shop/b: apiVersion is "discovery.k8s.io/v1beta1": want discovery.k8s.io/v1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := decodeManifests("f.yaml", []byte(test.text))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that begins with %q", err, test.want)
			}
			if len(objects) > 0 {
				t.Errorf("got %d objects beside the error, want none", len(objects))
			}
		})
	}
}

// Any text decodes to objects that make legal peers or exclusions, or to an error: never a panic.
func FuzzDecodeManifests(f *testing.F) {
	f.Add(goodSlice)
	f.Add("{\"kind\":\"List\",\"items\":[{}]}")
	f.Add("--- {}\n---\n- 1\n")
	f.Add(goodPod)
	f.Add(goodEndpoints)
	f.Add(strings.Replace(goodSlice, "192.0.2.1", "fe80::1%x, '::', \"1\"", 1))
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := decodeManifests("f.yaml", []byte(text))
		if err != nil && len(objects) > 0 {
			t.Errorf("%d objects beside the error %v", len(objects), err)
		}
		for _, o := range objects {
			checkChange(t, o)
		}
	})
}

// A file that is being written looks like each of its beginnings: that is a fault, or just the values that are whole.
func TestEveryCutOfAJSONStreamIsAFaultOrWhole(t *testing.T) {
	value := func(name string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop"},"status":{"podIP":"192.0.2.1"}}` + "\n"
	}
	first := value("a")
	text := first + value("b")
	for cut := range len(text) {
		objects, err := decodeManifests("f.json", []byte(text[:cut]))
		switch whole := strings.TrimSpace(text[:cut]) == strings.TrimSpace(first); {
		case err == nil && len(objects) == 1 && whole, err == nil && len(objects) == 2 && cut >= len(text)-1:
		case err == nil:
			t.Errorf("cut at %d of %d: got %d objects", cut, len(text), len(objects))
		}
	}
}
