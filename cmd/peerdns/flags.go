package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// setting is one flag, and one key of the configuration file. It keeps the texts that it is given, and reads them once
// both have been seen, so that the user sees every fault at once.
type setting struct {
	name, kind string // kind is what --help shows for the value; "" for a flag without one
	usage      string
	byDefault  string
	flagOnly   bool // no key of the file
	ofSet      bool // a key of a peer set
	list       bool // may have several values

	given  []string
	origin string // where it was given, as "--ttl" or "peerdns.yaml:3: ttl"
	onFlag bool   // given on the command line, which wins
	take   func(text string) error
}

// A setting is a pflag.Value.
func (s *setting) String() string { return s.byDefault }

// Type returns what the help shows for the value.
func (s *setting) Type() string { return s.kind }

// Set keeps a text from the command line.
func (s *setting) Set(text string) error {
	s.give(text, "--"+s.name)
	s.onFlag = true
	return nil
}

func (s *setting) give(text, origin string) {
	if !s.list {
		s.given = nil // the last one counts
	}
	s.given = append(s.given, text)
	s.origin = origin
}

// where returns the words that a fault of the setting begins with.
func (s *setting) where() string {
	if s.origin == "" {
		return "--" + s.name
	}
	return s.origin
}

// settings is all of them, in the order of the help.
type settings struct {
	order  []*setting
	titles map[string]string // of groups, by the name of their first setting
	title  string            // of the next group
	ofSet  bool              // the settings that follow are of a peer set
}

func (s *settings) group(title string) { s.title = title }

func (s *settings) add(new *setting) *setting {
	if s.title != "" {
		if s.titles == nil {
			s.titles = map[string]string{}
		}
		s.titles[new.name], s.title = s.title, ""
	}
	new.ofSet = s.ofSet
	s.order = append(s.order, new)
	return new
}

func (s *settings) lookup(name string) *setting {
	for _, setting := range s.order {
		if setting.name == name {
			return setting
		}
	}
	return nil
}

// read reads all that was given into the configuration.
func (s *settings) read() []error {
	var faults []error
	for _, setting := range s.order {
		for _, text := range setting.given {
			if err := setting.take(text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", setting.where(), err))
			}
		}
	}
	return faults
}

// one is a setting with one value, the last that is given.
func one[T any](s *settings, dst *T, name, kind, byDefault, usage string, parse func(string) (T, error)) *setting {
	return s.add(&setting{name: name, kind: kind, byDefault: byDefault, usage: usage, take: func(text string) error {
		value, err := parse(text)
		if err == nil {
			*dst = value
		}
		return err
	}})
}

// many is a setting that may be given several times, or as a list.
func many[T any](s *settings, dst *[]T, name, kind, usage string, parse func(string) (T, error)) *setting {
	return s.add(&setting{name: name, kind: kind, list: true, usage: usage, take: func(text string) error {
		value, err := parse(text)
		if err == nil {
			*dst = append(*dst, value)
		}
		return err
	}})
}

// yes is a setting without a value on the command line.
func yes(s *settings, dst *bool, name, usage string) *setting {
	return one(s, dst, name, "", "", usage, parseBool)
}

// parseArgs gives the settings what the command line says.
func (s *settings) parseArgs(args []string) []error {
	fs := pflag.NewFlagSet("peerdns", pflag.ContinueOnError)
	fs.Usage = func() {} // run prints what is asked for, where it belongs
	for _, setting := range s.order {
		short := ""
		if setting.name == "help" {
			short = "h"
		}
		if flag := fs.VarPF(setting, setting.name, short, ""); setting.kind == "" {
			flag.NoOptDefVal = "true"
		}
	}
	// pflag stops at the first unknown flag; we name all of them.
	fs.ParseErrorsAllowlist.UnknownFlags = true
	faults := s.unknownFlags(args)
	if err := fs.Parse(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		faults = append(faults, err)
	}
	for _, arg := range fs.Args() {
		faults = append(faults, fmt.Errorf("%q: peerdns takes flags only, see --help", arg))
	}
	return faults
}

// unknownFlags returns a fault for each argument that looks like a flag and is none.
func (s *settings) unknownFlags(args []string) []error {
	var faults []error
	isValue := false
	for _, arg := range args {
		if isValue {
			isValue = false
			continue
		}
		name, isLong := strings.CutPrefix(arg, "--")
		name, _, hasValue := strings.Cut(name, "=")
		setting := s.lookup(name)
		switch {
		case arg == "--":
			return faults
		case isLong && setting == nil:
			faults = append(faults, fmt.Errorf("--%s: no such flag%s, see --help", name, s.suggest(name)))
		case isLong:
			isValue = setting.kind != "" && !hasValue
		case len(arg) > 1 && arg[0] == '-' && arg != "-h":
			faults = append(faults, fmt.Errorf("%s: no such flag, see --help", arg))
		}
	}
	return faults
}

// suggest returns "(did you mean …?)" for a name that is nearly that of a setting.
func (s *settings) suggest(name string) string {
	best, distance := "", len(name)/2+1
	for _, setting := range s.order {
		if d := editDistance(name, setting.name); d < distance {
			best, distance = setting.name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// editDistance returns how many octets must be put in, taken out or changed to make b of a (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, change)
		}
	}
	return row[len(b)]
}

// help returns the help text, in 80 columns.
func (s *settings) help() string {
	const column, width = 31, 80
	var text strings.Builder
	text.WriteString("peerdns tells clustered programs on Kubernetes who their peers are, by DNS.\n\nUsage: peerdns [flags]\n")
	for _, setting := range s.order {
		if title := s.titles[setting.name]; title != "" {
			fmt.Fprintf(&text, "\n%s:\n", title)
		}
		line := strings.TrimRight("  --"+setting.name+" "+setting.kind, " ")
		usage := setting.usage
		if setting.byDefault != "" {
			usage += " (default " + setting.byDefault + ")"
		}
		if len(line) >= column-1 {
			text.WriteString(line + "\n")
			line = ""
		}
		line += strings.Repeat(" ", column-1-len(line))
		for word := range strings.FieldsSeq(usage) {
			if len(line)+1+len(word) > width {
				text.WriteString(line + "\n")
				line = strings.Repeat(" ", column-1)
			}
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}
