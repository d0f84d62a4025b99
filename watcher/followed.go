package watcher

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// followed is what some files that belong together say: the last good of it, however often they are read. It is not
// safe for concurrent use.
type followed[T any] struct {
	what  string   // as "token"
	paths []string // none: what was given stays
	parse func(texts [][]byte) (T, error)
	log   *slog.Logger

	good  T
	texts [][]byte // that made good
	fault error    // of the files now; nil if they are good
}

// newFollowed reads the files, or takes the texts that are given in place of them. Its error names the file.
func newFollowed[T any](what string, paths []string, texts [][]byte, log *slog.Logger, parse func([][]byte) (T, error)) (*followed[T], error) {
	f := &followed[T]{what: what, paths: paths, parse: parse, log: log}
	var err error
	if len(texts) > 0 {
		f.paths = nil
		if f.good, err = parse(texts); err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return f, err
	}
	_, err = f.load()
	return f, err
}

// check reads the files again and tells whether they say something else than before. What is wrong with them is logged
// once, and kept as the fault until they are good.
func (f *followed[T]) check() bool {
	if len(f.paths) == 0 {
		return false
	}
	changed, err := f.load()
	switch {
	case err == nil && (changed || f.fault != nil):
		f.log.Info("file for the API read", "what", f.what, "path", f.paths[0])
	case err != nil && (f.fault == nil || err.Error() != f.fault.Error()):
		f.log.Error("file for the API not read, what it said before stays in use", "err", err)
	}
	f.fault = err
	return changed
}

func (f *followed[T]) load() (changed bool, err error) {
	texts := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		if texts[i], err = os.ReadFile(path); err != nil {
			return false, fmt.Errorf("%s: %w", f.what, err)
		}
	}
	if equalTexts(texts, f.texts) {
		return false, nil
	}
	good, err := f.parse(texts)
	if err != nil {
		return false, fmt.Errorf("%s: %s: %w", f.what, strings.Join(f.paths, ", "), err)
	}
	f.good, f.texts = good, texts
	return true, nil
}

func equalTexts(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// parseToken reads a bearer token. Its errors never hold it.
func parseToken(texts [][]byte) (string, error) {
	token := string(bytes.TrimSpace(texts[0]))
	switch {
	case token == "":
		return "", errors.New("is empty: want a token")
	case strings.ContainsAny(token, " \t") || !httpguts.ValidHeaderFieldValue(token):
		return "", errors.New("is not a token: want one line without spaces (RFC 6750 §2.1)")
	}
	return token, nil
}

func parseKeyPair(texts [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	return &pair, err
}
