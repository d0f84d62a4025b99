package watcher

import (
	"errors"
	"fmt"
	"strings"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/spec"
)

// Whoever may write a pod writes its annotations, and no pod may hold up the others: a path is refused before it is
// evaluated if it is out of these bounds, and given up when its steps are spent.
const (
	maxPath      = 512 // octets
	maxOpen      = 16  // brackets and parentheses that are open at once: the parser recurses
	maxSegments  = 32
	maxSelectors = 16 // in one segment

	// maxSteps bounds the cost of one evaluation, in octets of the pod times octets of the filter that looks at them. A
	// step is some nanoseconds, so that the worst path takes about a tenth of a second; for a filter of 30 octets
	// it is 280 kB of containers.
	maxSteps  = 1 << 23
	nodeSteps = 64 // of a node that a segment looks at or selects
	callSteps = 16 // of a filter on a node, besides its octets: a pattern is compiled each time
)

// nodePath is a JSONPath (RFC 9535) of bounded cost. The filters of one have no filters, no descendants and no lists of
// selectors, so that what a filter does on a node grows with the octets below the node and those of the filter, and no
// faster. Patterns are literals that compile to about the length of their text.
type nodePath struct {
	query *spec.PathQuery
	root  bool // a filter speaks of the whole document
}

var errSteps = errors.New("takes too long: narrow it")

func parsePath(text string) (nodePath, error) {
	if len(text) > maxPath {
		return nodePath{}, fmt.Errorf("a JSONPath of %d octets: want at most %d", len(text), maxPath)
	}
	var s pathScan
	if err := s.scan(text); err != nil {
		return nodePath{}, fmt.Errorf("%q: %w", text, err)
	}
	path, err := jsonpath.Parse(text)
	if err != nil {
		return nodePath{}, fmt.Errorf("%q is no JSONPath: %w", text, err)
	}
	segments := path.Query().Segments()
	if len(segments) > maxSegments {
		return nodePath{}, fmt.Errorf("%q has %d segments: want at most %d", text, len(segments), maxSegments)
	}
	for _, segment := range segments {
		if n := len(segment.Selectors()); n > maxSelectors {
			return nodePath{}, fmt.Errorf("%q has %d selectors in a segment: want at most %d", text, n, maxSelectors)
		}
	}
	return nodePath{path.Query(), s.root}, nil
}

// pathScan looks at a path's text before the parser does: the parser's work grows with what is nested, and what it
// makes of a filter cannot be looked into. Text that is no path is the parser's to refuse.
type pathScan struct {
	open        []opened
	root        bool // "$" in a filter
	descendants int
	literal     string // the last token, if it is a literal
}

// opened is a bracket or a parenthesis.
type opened struct {
	list    bool // of selectors
	inside  bool // a filter
	filter  bool // the selector that stands here is one
	pattern bool // it holds the arguments of match or search
}

func (s *pathScan) top() opened {
	if len(s.open) == 0 {
		return opened{}
	}
	return s.open[len(s.open)-1]
}

func (s *pathScan) scan(text string) error {
	for i := 0; i < len(text); i++ {
		c, top := text[i], s.top()
		inFilter := top.inside || top.filter
		switch c {
		case ' ', '\t', '\n', '\r':
			continue
		case '\'', '"':
			end := literalEnd(text, i)
			s.literal = text[i:end]
			i = end - 1
			continue
		case '[', '(':
			if len(s.open) == maxOpen {
				return fmt.Errorf("more than %d brackets in each other", maxOpen)
			}
			before := strings.TrimRight(text[:i], " \t\n\r")
			pattern := c == '(' && (strings.HasSuffix(before, "match") || strings.HasSuffix(before, "search"))
			s.open = append(s.open, opened{list: c == '[', inside: inFilter, pattern: pattern})
		case ']', ')':
			if top.pattern {
				if err := checkPattern(s.literal); err != nil {
					return err
				}
			}
			s.open = s.open[:max(0, len(s.open)-1)]
		case '?':
			if inFilter {
				return errors.New("a filter in a filter")
			}
			if len(s.open) > 0 {
				s.open[len(s.open)-1].filter = true
			}
		case ',':
			if top.inside && top.list {
				return errors.New("a list of selectors in a filter")
			}
			if len(s.open) > 0 {
				s.open[len(s.open)-1].filter = false
			}
		case '$':
			s.root = s.root || inFilter
		case '.':
			if i == 0 || text[i-1] != '.' {
				break
			}
			if s.descendants++; inFilter {
				return errors.New("descendants in a filter")
			} else if s.descendants > 1 {
				return errors.New("descendants of descendants")
			}
		}
		s.literal = ""
	}
	return nil
}

// literalEnd returns where the literal ends that begins at i.
func literalEnd(text string, i int) int {
	for end := i + 1; end < len(text); end++ {
		switch text[end] {
		case '\\':
			end++
		case text[i]:
			return end + 1
		}
	}
	return len(text)
}

// checkPattern takes the last argument of match or search: a pattern from the pod could be as long as the pod, and
// "x{1000}" and "\pL" are programs a thousand times as long as their text.
func checkPattern(literal string) error {
	switch {
	case literal == "":
		return errors.New("a pattern that is not a literal")
	case strings.Contains(literal, `\u`):
		return errors.New(`a pattern with \u`) // which may hide the others
	case strings.ContainsAny(literal, "{"), strings.Contains(literal, `\p`), strings.Contains(literal, `\P`):
		return errors.New(`a pattern with {, \p or \P`)
	}
	return nil
}

// find returns what the path selects in the document.
func (p nodePath) find(document any) ([]any, error) {
	e := evaluation{document: document, left: maxSteps}
	if p.root {
		e.whole = octets(document, maxSteps)
	}
	nodes := []any{document}
	for _, segment := range p.query.Segments() {
		e.found = nil
		for _, node := range nodes {
			if !e.segment(segment, node) {
				return nil, errSteps
			}
		}
		nodes = e.found
	}
	return nodes, nil
}

type evaluation struct {
	document any
	whole    int // octets of the document, if filters look at it
	left     int // steps
	found    []any
}

func (e *evaluation) spend(steps int) bool {
	e.left -= steps
	return e.left >= 0
}

// segment appends what the segment selects from one node to what is found; not ok if there are no steps left.
func (e *evaluation) segment(s *spec.Segment, node any) bool {
	for _, selector := range s.Selectors() {
		if !e.spend(nodeSteps) {
			return false
		}
		if filter, ok := selector.(*spec.FilterSelector); ok {
			if !e.filter(filter, node) {
				return false
			}
			continue
		}
		selected := selector.Select(node, e.document)
		if e.found = append(e.found, selected...); !e.spend(nodeSteps * len(selected)) {
			return false
		}
	}
	if !s.IsDescendant() {
		return true
	}
	return eachChild(node, func(child any) bool { return e.segment(s, child) })
}

func (e *evaluation) filter(filter *spec.FilterSelector, node any) bool {
	length := len(filter.String())
	return eachChild(node, func(child any) bool {
		if !e.spend(nodeSteps + length*(callSteps+e.whole+octets(child, e.left))) {
			return false
		}
		if filter.Eval(child, e.document) {
			e.found = append(e.found, child)
		}
		return true
	})
}

// eachChild calls do for the children of a node as long as it returns true, and tells whether it always did.
func eachChild(node any, do func(child any) bool) bool {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if !do(child) {
				return false
			}
		}
	case map[string]any:
		for _, child := range node {
			if !do(child) {
				return false
			}
		}
	}
	return true
}

// octets returns about how long the node is as JSON, or some number above the limit if it is longer than that.
func octets(node any, limit int) int {
	n := 1
	if text, ok := node.(string); ok {
		n += len(text)
	}
	if object, ok := node.(map[string]any); ok {
		for key := range object {
			n += len(key)
		}
	}
	eachChild(node, func(child any) bool {
		n += octets(child, limit-n)
		return n <= limit
	})
	return n
}
