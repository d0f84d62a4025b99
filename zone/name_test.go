package zone

import (
	"errors"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestParseName(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"Peers.Test", "peers.test."},
		{"peers.test.", "peers.test."},
		{`foo\.Peers.test.`, `foo\.peers.test.`},
		{".", "."},
	} {
		name, err := ParseName(test.text)
		if err != nil || name.String() != test.want {
			t.Errorf("ParseName(%q) = %s, %v; want %s", test.text, name, err, test.want)
		}
	}
	for _, bad := range []string{"", "a..b", strings.Repeat("a", 64) + ".test.", strings.Repeat("a.", 128)} {
		if name, err := ParseName(bad); !errors.Is(err, ErrName) {
			t.Errorf("ParseName(%q) = %s, %v; want ErrName", bad, name, err)
		}
	}
}

func TestNameInMindsLabels(t *testing.T) {
	apex := mustName(t, "peers.test.")
	for text, want := range map[string]bool{
		"peers.test.":          true,
		"web.peers.test.":      true,
		`foo\.peers.test.`:     false, // the label "foo.peers" below "test."
		"xpeers.test.":         false,
		"test.":                false,
		".":                    false,
		"peers.test.example.":  false,
		`a.\012peers.test.`:    false,
		"peers.test.peers.tes": false,
	} {
		if got := mustName(t, text).In(apex); got != want {
			t.Errorf("%s in %s: got %v, want %v", text, apex, got, want)
		}
	}
}

func TestNameChildHasLimits(t *testing.T) {
	if _, err := Root.Child(strings.Repeat("a", 64)); !errors.Is(err, ErrName) {
		t.Errorf("label of 64 octets: got %v, want ErrName", err)
	}
	if _, err := Root.Child(""); !errors.Is(err, ErrName) {
		t.Errorf("empty label: got %v, want ErrName", err)
	}
	name := Root
	for range 3 {
		name, _ = name.Child(strings.Repeat("a", 63))
	}
	name, err := name.Child(strings.Repeat("a", 61))
	if err != nil || len(name) != 255 {
		t.Fatalf("name of 255 octets: got %d octets, %v", len(name), err)
	}
	if _, err := name.Child("a"); !errors.Is(err, ErrName) {
		t.Errorf("name of 257 octets: got %v, want ErrName", err)
	}
}

// The order of the example in RFC 4034 §6.1.
func TestNameCompareIsCanonicalOrder(t *testing.T) {
	ordered := []string{
		"example.", "a.example.", "yljkjljk.a.example.", "Z.a.example.", "zABC.a.EXAMPLE.", "z.example.",
		`\001.z.example.`, "*.z.example.", `\200.z.example.`,
	}
	for i := range ordered {
		for j := range ordered {
			got := mustName(t, ordered[i]).Compare(mustName(t, ordered[j]))
			if (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s against %s: got %d", ordered[i], ordered[j], got)
			}
		}
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"peers.test.", `foo\.peers.test.`, `\000\255.TEST.`, "."} {
		f.Add(seed, "peers.test.")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		name, err := ParseName(a)
		if err != nil {
			return
		}
		again, err := ParseName(name.String())
		if err != nil || again != name {
			t.Fatalf("%q: canonical twice is %q, %v; once is %q", a, again, err, name)
		}
		apex, err := ParseName(b)
		if err != nil {
			return
		}
		if got, want := name.In(apex), dns.IsSubDomain(apex.String(), name.String()); got != want {
			t.Errorf("%s in %s: got %v, want %v", name, apex, got, want)
		}
	})
}
