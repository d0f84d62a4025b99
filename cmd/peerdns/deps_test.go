package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Arrows point at package zone: what each package must not know, by all that it depends on or by its own imports.
func TestDependencyDirection(t *testing.T) {
	for _, test := range []struct{ pkg, list, forbidden string }{
		{"peerdns/zone", "Deps", "k8s.io/"},
		{"peerdns/zone", "Deps", "peerdns/"},
		{"peerdns/zone", "Imports", "net"},
		{"peerdns/zone", "Imports", "os"},
		{"peerdns/resolver", "Deps", "k8s.io/"},
		{"peerdns/resolver", "Deps", "peerdns/watcher"},
		{"peerdns/watcher", "Deps", "peerdns/resolver"},
		{"peerdns/watcher", "Imports", "github.com/miekg/dns"},
	} {
		out, err := exec.Command("go", "list", "-f", `{{join .`+test.list+` "\n"}}`, test.pkg).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", test.pkg, err)
		}
		packages := strings.Fields(string(out))
		if len(packages) == 0 {
			t.Fatalf("%s has no %s", test.pkg, test.list)
		}
		i := slices.IndexFunc(packages, func(p string) bool {
			return p == test.forbidden || strings.HasSuffix(test.forbidden, "/") && strings.HasPrefix(p, test.forbidden)
		})
		if i >= 0 {
			t.Errorf("%s of %s: %s", test.list, test.pkg, packages[i])
		}
	}
}
