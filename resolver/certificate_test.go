package resolver

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// textLines is a log's lines as text, without the time.
type textLines chan string

func (l textLines) Write(line []byte) (int, error) {
	select {
	case l <- strings.TrimSpace(string(line)):
	default:
	}
	return len(line), nil
}

func (l textLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// await returns the next line that has a part.
func (l textLines) await(t *testing.T, part string) string {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, part) {
				return line
			}
		case <-timer.C:
			t.Fatalf("no line with %q", part)
		}
	}
}

// all returns the lines that are there.
func (l textLines) all() (lines []string) {
	for len(l) > 0 {
		lines = append(lines, <-l)
	}
	return lines
}

func expiry(t *testing.T, p pemPair) string {
	t.Helper()
	block, _ := pem.Decode(p.cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert.NotAfter.Format("2006-01-02T15:04:05.000Z07:00")
}

func wantLog(t *testing.T, log textLines, when string, want ...string) {
	t.Helper()
	if got := log.all(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: logged\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is wrong with them is said once, and changes nothing.
func TestABrokenPairKeepsTheOldOne(t *testing.T) {
	first, second := newPair(t, "one.test"), newPair(t, "two.test")
	files := first.files(t)
	log := make(textLines, 100)
	c, err := loadCertificate(files, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	loaded := func(p pemPair, name string) string {
		return fmt.Sprintf(`level=INFO msg="certificate loaded" path=%s names=[%s] expires=%s`, files.CertFile, name, expiry(t, p))
	}
	broken := func(err string) string {
		return fmt.Sprintf(`level=ERROR msg="certificate not loaded, the one before stays in use" err=%q`, err)
	}
	c.check()
	wantLog(t, log, "start", loaded(first, "one.test"))
	config := c.config.Load()

	writeFile(t, files.CertFile, second.cert)
	c.check()
	wantLog(t, log, "mismatch", broken("TLS key: "+files.KeyFile+", for the certificate "+files.CertFile+
		": tls: private key does not match public key"))
	c.check()
	wantLog(t, log, "the same again")
	must(t, os.Remove(files.CertFile))
	c.check()
	wantLog(t, log, "gone", broken("TLS certificate: open "+files.CertFile+": no such file or directory"))
	if c.config.Load() != config {
		t.Error("the old pair is not in use any more")
	}

	writeFile(t, files.CertFile, first.cert)
	c.check()
	wantLog(t, log, "back", loaded(first, "one.test"))
	if c.config.Load() != config {
		t.Error("the same pair lost its session tickets")
	}
	writeFile(t, files.CertFile, second.cert)
	writeFile(t, files.KeyFile, second.key)
	c.check()
	wantLog(t, log, "new", loaded(second, "two.test"))
	if c.config.Load() == config {
		t.Error("the new pair is not in use")
	}
}

// Where no event comes, the files are read now and then.
func TestALostEventDoesNotMatter(t *testing.T) {
	first, second := newPair(t, "one.test"), newPair(t, "two.test")
	files, log := first.files(t), make(textLines, 100)
	c, err := loadCertificate(files, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	log.await(t, "names=[one.test]")
	tick, stopping, ended := make(chan time.Time), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.followEvents(stopping, nil, tick)
	}()
	tick <- time.Time{} // taken after the first reading
	writeFile(t, files.KeyFile, second.key)
	writeFile(t, files.CertFile, second.cert)
	tick <- time.Time{}
	log.await(t, "names=[two.test]")
	close(stopping)
	<-ended
}

// served checks that new clients see the certificate of a name, and no other.
func served(t *testing.T, s *serving, pairs map[string]pemPair, name string) {
	t.Helper()
	conn := s.dialTLS(t, pairs[name].trusting(name))
	write(t, conn, framed(t, web))
	readFrame(t, conn)
}

// As the kubelet does it: the files are links into ..data, which is a link to a folder, and is renamed over.
func TestASecretsSwapIsSeen(t *testing.T) {
	pairs := map[string]pemPair{"one.test": newPair(t, "one.test"), "two.test": newPair(t, "two.test"), "three.test": newPair(t, "three.test")}
	dir := t.TempDir()
	swap := func(name string) {
		t.Helper()
		folder := filepath.Join(dir, "..2026_"+name)
		must(t, os.Mkdir(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, "tls.crt"), pairs[name].cert, 0o600))
		must(t, os.WriteFile(filepath.Join(folder, "tls.key"), pairs[name].key, 0o600))
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		must(t, os.Symlink(filepath.Base(folder), filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if old != "" {
			must(t, os.RemoveAll(filepath.Join(dir, old)))
		}
	}
	swap("one.test")
	files := TLSFiles{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	must(t, os.Symlink("..data/tls.crt", files.CertFile))
	must(t, os.Symlink("..data/tls.key", files.KeyFile))
	log := make(textLines, 100)
	s := serveTLS(t, shop(t), files, log.logger())
	served(t, s, pairs, "one.test")
	for _, name := range []string{"two.test", "three.test"} {
		swap(name)
		log.await(t, `names=[`+name+`]`)
		served(t, s, pairs, name)
	}
}

// As certbot does it: links from one folder to another, in which there are all pairs that ever were.
func TestALinkToAnotherFolderIsSeen(t *testing.T) {
	pairs := map[string]pemPair{"one.test": newPair(t, "one.test"), "two.test": newPair(t, "two.test"), "three.test": newPair(t, "three.test")}
	dir, first, second := t.TempDir(), pairs["one.test"].files(t), pairs["two.test"].files(t)
	files := TLSFiles{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	must(t, os.Symlink(first.CertFile, files.CertFile))
	must(t, os.Symlink(first.KeyFile, files.KeyFile))
	log := make(textLines, 100)
	s := serveTLS(t, shop(t), files, log.logger())
	served(t, s, pairs, "one.test")
	for path, target := range map[string]string{files.CertFile: second.CertFile, files.KeyFile: second.KeyFile} {
		must(t, os.Symlink(target, path+".new"))
		must(t, os.Rename(path+".new", path))
	}
	log.await(t, "names=[two.test]")
	served(t, s, pairs, "two.test")
	writeFile(t, second.KeyFile, pairs["three.test"].key) // where the links lead now
	writeFile(t, second.CertFile, pairs["three.test"].cert)
	log.await(t, "names=[three.test]")
	served(t, s, pairs, "three.test")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
