package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml/goyaml.v3"

	"peerdns/watcher"
)

// The configuration file is a YAML mapping whose keys are the flags' names, and "peer-sets": a list of mappings whose
// keys are the flags of a peer set. It is read strictly: a key that is unknown or given twice is a fault with its line.

const peerSetsKey = "peer-sets"

// configFile is a configuration file that is being read.
type configFile struct {
	path   string
	faults []error
}

func (f *configFile) fault(line int, format string, args ...any) {
	f.faults = append(f.faults, fmt.Errorf("%s:%d: %w", f.path, line, fmt.Errorf(format, args...)))
}

// readFile gives the settings what the file says, unless a flag has said it, and returns the peer sets of the file.
func readFile(path string, s *settings) ([]*PeerSet, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("--config: %w", err)}
	}
	f := &configFile{path: path}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	err = decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil // nothing in it, or comments only
	case err != nil:
		line, what := watcher.YAMLFault(err)
		return nil, []error{fmt.Errorf("%s:%d: not YAML: %s", path, line, what)}
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		f.fault(max(more.Line, 1), "a second document: want one")
	}
	var sets []*PeerSet
	f.mapping(root.Content[0], s, func(key, value *yaml.Node) bool {
		if key.Value != peerSetsKey {
			return false
		}
		sets = f.peerSets(value)
		return true
	})
	return sets, f.faults
}

// mapping gives the settings what a mapping says. Keys that other takes are its own.
func (f *configFile) mapping(node *yaml.Node, s *settings, other func(key, value *yaml.Node) bool) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		f.fault(node.Line, "want a mapping of settings to values")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if line, twice := seen[key.Value]; twice {
			f.fault(key.Line, "%s: given twice, first in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		if other(key, value) {
			continue
		}
		setting := s.lookup(key.Value)
		switch {
		case setting == nil:
			f.fault(key.Line, "%s: no such key%s", key.Value, s.suggest(key.Value))
		case setting.flagOnly:
			f.fault(key.Line, "%s: goes on the command line only", key.Value)
		default:
			f.value(key, value, setting)
		}
	}
}

// value gives a setting one value or a list of them.
func (f *configFile) value(key, value *yaml.Node, s *setting) {
	values := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		switch values = value.Content; {
		case len(values) == 0:
			f.fault(value.Line, "%s: is an empty list: want a value, or no key", key.Value)
		case !s.list && s.name != pinnedKey:
			f.fault(value.Line, "%s: is a list: want one value", key.Value)
			return
		}
	}
	var texts []string
	for _, v := range values {
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
			f.fault(v.Line, "%s: want a plain value", key.Value)
			return
		}
		texts = append(texts, v.Value)
	}
	if s.onFlag {
		return
	}
	if s.name == pinnedKey && len(texts) > 0 {
		texts = []string{strings.Join(texts, ",")}
	}
	for _, text := range texts {
		s.give(text, fmt.Sprintf("%s:%d: %s", f.path, value.Line, key.Value))
	}
}

// peerSets reads the list of peer sets.
func (f *configFile) peerSets(list *yaml.Node) []*PeerSet {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		f.fault(list.Line, "%s: want a list of peer sets", peerSetsKey)
		return nil
	}
	var sets []*PeerSet
	for i, item := range list.Content {
		set := newPeerSet(fmt.Sprintf("set-%d", i+1), fmt.Sprintf("%s:%d: %s", f.path, item.Line, peerSetsKey))
		s := &settings{}
		one(s, &set.Set, "name", "NAME", "", "", parseSetName)
		set.bind(s)
		f.mapping(item, s, func(_, _ *yaml.Node) bool { return false })
		f.faults = append(f.faults, s.read()...)
		sets = append(sets, set)
	}
	return sets
}
