package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"peerdns/watcher"
	"peerdns/zone"
)

// Each file of testdata/golden holds objects, and the flags or the configuration file to read them with; the zone
// that they make, as --print-zone prints it; and what is left out, with its reason.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := &txtar.Archive{Comment: archive.Comment}
			args := []string{"--zone=peers.test", "--advertise-address=192.0.2.53", "--manifests=objects.yaml"}
			for _, file := range archive.Files {
				switch file.Name {
				case "excluded", "warnings", "zone":
					continue // results
				case "flags":
					args = append(args, strings.Fields(string(file.Data))...)
				default:
					if err := os.WriteFile(file.Name, file.Data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				got.Files = append(got.Files, file)
			}
			view := read(t, args)
			for name, text := range map[string]string{"excluded": excludedText(view), "warnings": warningsText(view)} {
				if text != "" {
					got.Files = append(got.Files, txtar.File{Name: name, Data: []byte(text)})
				}
			}
			got.Files = append(got.Files, txtar.File{Name: "zone", Data: printed(t, args)})
			if *update {
				if err := os.WriteFile(path, txtar.Format(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(texts(archive), texts(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// read returns the view that the program would answer from.
func read(t *testing.T, args []string) *zone.View {
	t.Helper()
	config, _, faults := parseConfig(args, noEnv)
	log := slog.New(slog.DiscardHandler)
	var sources []watcher.Source
	if len(faults) == 0 {
		sources, faults = newSources(config, log)
	}
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	store, err := newStore(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.New(sources, store, log).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store.View()
}

var serial = regexp.MustCompile(`(IN\tSOA\t\S+ \S+) \d+`)

// printed returns what --print-zone prints, but for the serial, which is that of the day.
func printed(t *testing.T, args []string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(nil, append(args, "--print-zone"), noEnv, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit status %d\n%s", code, stderr.String())
	}
	return serial.ReplaceAll(stdout.Bytes(), []byte("$1 1"))
}

// excludedText has a line for each exclusion.
func excludedText(view *zone.View) string {
	var text strings.Builder
	for _, e := range view.Excluded() {
		fmt.Fprintf(&text, "pod %s/%s service %q hostname %q addresses %v: %s\n",
			e.Namespace, e.Pod, e.Service, e.Hostname, e.Addrs, e.Reason)
	}
	return text.String()
}

func warningsText(view *zone.View) string {
	var text strings.Builder
	for _, warning := range view.Warnings() {
		fmt.Fprintln(&text, warning)
	}
	return text.String()
}

func texts(archive *txtar.Archive) map[string]string {
	text := map[string]string{}
	for _, f := range archive.Files {
		text[f.Name] = string(f.Data)
	}
	return text
}
