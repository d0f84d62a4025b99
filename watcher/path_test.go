package watcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// largePod is about as large as etcd takes: containers with variables, and many of them.
func largePod(containers, variables int) *corev1.Pod {
	p := podOf("web-0", corev1.PodRunning)
	p.Annotations = map[string]string{"long": strings.Repeat("a", 200_000)}
	for i := range containers {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		for j := range variables {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", j), Value: fmt.Sprintf("host-%d-%d.test", i, j)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func list(selector string, n int) string {
	return "[" + strings.Repeat(selector+",", n-1) + selector + "]"
}

// What is not refused by its text is given up by its cost. Without bounds most of these take gigabytes, or hours.
func TestNoPathHoldsUpOthers(t *testing.T) {
	p := largePod(100, 200)
	evaluate := evaluator(p)
	if _, err := evaluate("$.metadata.name"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"$" + list("'spec'", 201) + list("'containers'", 201) + list("0", 201) + list("'env'", 201): "octets: want at most",
		"$..[?$..[?$..[?$..*]]]": "descendants in a filter",
		"$" + strings.Repeat("[?", 3000) + "@.a" + strings.Repeat("]", 3000): "octets: want at most",
		"$" + strings.Repeat("[?", 20) + "@.a" + strings.Repeat("]", 20):     "a filter in a filter",
		"$" + strings.Repeat("[", 20):                                        "brackets in each other",
		"$[?" + strings.Repeat("(", 16) + "@.a":                              "brackets in each other",
		"$..*..*":                                                            "descendants of descendants",
		"$..[?@..a]":                                                         "descendants in a filter",
		"$..[?$..a]":                                                         "descendants in a filter",
		"$[?@['a','a']['b','b']]":                                            "list of selectors in a filter",
		"$.a[?@.b == 1, ?count(@['a','b'])]":                                 "list of selectors in a filter",
		"$" + strings.Repeat(".a", 33):                                       "segments",
		"$" + list("*", 17):                                                  "selectors in a segment",
		"$[?match(@.a, $.metadata.annotations.long)]":                        "a pattern that is not a literal",
		"$[?search (@.a, value(@.b))]":                                       "a pattern that is not a literal",
		"$[?match(@, 'a{1000}')]":                                            "a pattern with",
		`$[?match(@, "a\u007b1000}")]`:                                       "a pattern with",
		"$" + strings.Repeat(list("*", 13), 12):                              "takes too long",
		"$.spec" + strings.Repeat(list("'containers'", 16), 1) + strings.Repeat(list("*", 16), 4): "takes too long",
		"$.." + strings.Repeat(list("*", 16), 3):                                                  "takes too long",
		"$..[?$ == $]":                                                                            "takes too long",
		"$..[?$.metadata.annotations.long == $.metadata.annotations['long']]":                     "takes too long",
		"$..[?count(@.*.*.*.*.*.*) > count(@.*.*.*.*)]":                                           "takes too long",
		"$..[?search(@.value, '" + strings.Repeat("(a|a?)+", 60) + "$')]":                         "takes too long",
		"$.spec.containers[*].env[?search(@.value, '" + strings.Repeat("(a|a?)+", 60) + "$')]":    "takes too long",
		"$.spec.containers[*].env[?search(@.value, '" + strings.Repeat("h?", 200) + "$')]":        "takes too long",
		"$.spec.containers[*].env[*][?match(@, '" + strings.Repeat(`\\pL*`, 80) + "')]":           "a pattern with",
		"$..[?length($.metadata.annotations.long) > 3]":                                           "takes too long",
	} {
		begun := time.Now()
		text, err := evaluate(path)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%.60s takes %v", path, took)
		} else {
			t.Logf("%.60s: %v", path, took)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %.60q, %.200v, want %q", path, text, err, want)
		}
	}
}

func TestWhatPeopleWriteIsEvaluated(t *testing.T) {
	p := largePod(10, 20)
	p.Annotations = nil
	p.Labels = map[string]string{"app.kubernetes.io/name": "web", "odd": "a..b[?(','"}
	p.Spec.Containers[0].Env[7] = corev1.EnvVar{Name: "EXTERNAL_DNS", Value: "far.test"}
	evaluate := evaluator(p)
	for path, want := range map[string]string{
		"$.metadata.name": "web-0",
		"$.metadata.labels['app.kubernetes.io/name']":                                 "web",
		"$.spec.containers[?(@.name >= '0')].env[?(@.name == 'EXTERNAL_DNS')].value":  "far.test",
		"$..env[?@.name=='EXTERNAL_DNS'].value":                                       "far.test",
		"$.spec.containers[?match(@.name, 'c5.*')].env[-1].value":                     "host-5-19.test",
		"$.spec.containers[?search(@.name, '^c5')].env[?@.name == \"V0\"].value":      "host-5-0.test",
		"$.spec.containers[0:1].env[?((@.name == 'V1') && !(@.name == 'V2'))].value":  "host-0-1.test",
		"$.metadata.labels[?@ == 'a..b[?(\\',\\'']":                                   "a..b[?(','",
		"$.spec.containers[?count(@.env[*]) == 20 && @.name == 'c3'].env[0]['value']": "host-3-0.test",
		"$.spec.containers[?@.name == $.spec.nodeName, ?@.name == 'c1'].name":         "c1",
	} {
		text, err := evaluate(path)
		if err != nil || text != want {
			t.Errorf("%s: got %q, %v, want %q", path, text, err, want)
		}
	}
}

func FuzzNodePath(f *testing.F) {
	for _, path := range []string{"$.metadata.name", "$..*", "$[?@.a == 'b' && match(@.c, 'x.*')]", "$['a',\"b\"][0:1:-1]"} {
		f.Add(path)
	}
	evaluate := evaluator(largePod(20, 50))
	f.Fuzz(func(t *testing.T, path string) {
		begun := time.Now()
		text, err := evaluate(path)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("takes %v", took)
		}
		if err == nil && len(text) > maxNodeName {
			t.Errorf("finds a text of %d octets", len(text))
		}
	})
}
