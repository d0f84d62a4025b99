package resolver

import (
	"context"
	"crypto/sha256"
	cryptotls "crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TLSFiles are the files with the certificate chain, the server's own first, and with its private key, both PEM. They
// are followed: new connections have what the files say now.
type TLSFiles struct {
	CertFile, KeyFile string
}

const (
	// settle is how long after an event the files are read: a pair takes several steps to be written.
	settle = 50 * time.Millisecond

	// recheck is how often the files are read without an event, since one may be lost, or the system may have none.
	recheck = 30 * time.Second
)

// certificate is the pair that is in use: the last good one.
type certificate struct {
	files  TLSFiles
	log    *slog.Logger
	config atomic.Pointer[cryptotls.Config] // for new connections; never nil

	// These belong to follow.
	sum        pairSum // of the files that made config
	fault      string  // of the files now, "" if they are good
	watchFault string
}

// pairSum tells one pair of texts from another.
type pairSum [2][sha256.Size]byte

// loadCertificate reads the files. Its error names the one at fault.
func loadCertificate(files TLSFiles, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the files and takes them into use if they are good and others than before.
func (c *certificate) load() error {
	pair, sum, err := c.files.read()
	if err != nil {
		return err
	}
	if sum == c.sum && c.fault == "" {
		return nil
	}
	if sum != c.sum { // else the session tickets would be lost for nothing
		c.config.Store(tlsConfig(pair))
		c.sum = sum
	}
	c.fault = ""
	level := slog.LevelInfo
	if time.Now().After(pair.Leaf.NotAfter) {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "certificate loaded",
		"path", c.files.CertFile, "names", namesOf(pair.Leaf), "expires", pair.Leaf.NotAfter)
	return nil
}

// check reads the files again. What is wrong with them is said once.
func (c *certificate) check() {
	err := c.load()
	if err == nil || err.Error() == c.fault {
		return
	}
	c.fault = err.Error()
	c.log.Error("certificate not loaded, the one before stays in use", "err", err)
}

// read reads a pair.
func (f TLSFiles) read() (pair cryptotls.Certificate, sum pairSum, err error) {
	switch "" {
	case f.CertFile:
		return pair, sum, errors.New("TLS certificate: no file is named")
	case f.KeyFile:
		return pair, sum, errors.New("TLS key: no file is named")
	}
	cert, err := os.ReadFile(f.CertFile)
	if err != nil {
		return pair, sum, fmt.Errorf("TLS certificate: %w", err)
	}
	key, err := os.ReadFile(f.KeyFile)
	if err != nil {
		return pair, sum, fmt.Errorf("TLS key: %w", err)
	}
	// X509KeyPair does not say in which of the two the fault is.
	if err := checkChain(cert); err != nil {
		return pair, sum, fmt.Errorf("TLS certificate: %s: %w", f.CertFile, err)
	}
	if pair, err = cryptotls.X509KeyPair(cert, key); err != nil {
		return pair, sum, fmt.Errorf("TLS key: %s, for the certificate %s: %w", f.KeyFile, f.CertFile, err)
	}
	return pair, pairSum{sha256.Sum256(cert), sha256.Sum256(key)}, nil
}

// checkChain parses every certificate of a file: a fault in an intermediate one would show at clients only.
func checkChain(text []byte) error {
	n := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return errors.New("no certificate in PEM form")
	}
	return nil
}

// namesOf returns whom a certificate is for.
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if names == nil {
		names = []string{leaf.Subject.String()}
	}
	return names
}

// follow keeps up with the files until the server ends.
func (c *certificate) follow(stopping <-chan struct{}) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		c.log.Warn("certificate is not followed but read regularly", "err", err, "interval", recheck)
	} else {
		defer notify.Close()
	}
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	c.followEvents(stopping, notify, ticker.C)
}

// followEvents reads the files now, after events and on every tick. notify may be nil.
func (c *certificate) followEvents(stopping <-chan struct{}, notify *fsnotify.Watcher, tick <-chan time.Time) {
	var events <-chan fsnotify.Event
	var lost <-chan error // events may have been, and reading makes up for them
	if notify != nil {
		events, lost = notify.Events, notify.Errors
	}
	for {
		c.watch(notify) // first, so that what changes while we read is read again
		c.check()
		var settled <-chan time.Time
		for due := false; !due; {
			select {
			case <-stopping:
				return
			case <-tick:
				due = true
			case <-settled:
				due = true
			case <-events:
			case err := <-lost:
				c.log.Debug("events of the certificate's files may be lost", "err", err)
			}
			if settled == nil && !due {
				settled = time.After(settle)
			}
		}
	}
}

// watch asks for events of the folders in which the files are, and are really: the link to a Secret's contents is
// swapped in the one, other files are renamed in the other. A watched file would be left behind by both.
func (c *certificate) watch(notify *fsnotify.Watcher) {
	if notify == nil {
		return
	}
	var want []string
	for _, path := range []string{c.files.CertFile, c.files.KeyFile} {
		want = append(want, filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			want = append(want, filepath.Dir(target))
		}
	}
	for _, dir := range notify.WatchList() {
		if !slices.Contains(want, dir) {
			_ = notify.Remove(dir) // fails if the folder is gone, and its watch with it
		}
	}
	fault := ""
	for _, dir := range want {
		// Again also if it is watched: another folder may have its name now.
		if err := notify.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			fault = fmt.Sprintf("%s: %v", dir, err)
		}
	}
	if fault != c.watchFault && fault != "" {
		c.log.Warn("certificate is not followed but read regularly", "err", fault, "interval", recheck)
	}
	c.watchFault = fault
}
