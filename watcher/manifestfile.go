package watcher

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerdns/zone"
)

// MaxFileSize is how many octets of a file are read at most.
const MaxFileSize = 64 << 20

// racy is how long after a change a file may change again and keep its time: file systems tell times in steps.
const racy = 2 * time.Second

// manifestFile is a file as it was last read.
type manifestFile struct {
	info    fs.FileInfo       // when it was last decoded; nil: read it again in any case
	read    time.Time         // when that began
	sum     [sha256.Size]byte // of the text that was last decoded
	err     error             // of the last try; nil when it was good
	good    bool              // some try was good
	changes []zone.Change
}

// unchanged tells from the file's state that its text is the one that was decoded.
func (f *manifestFile) unchanged(now fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, now) && f.info.Size() == now.Size() &&
		f.info.ModTime().Equal(now.ModTime()) && f.read.Sub(now.ModTime()).Abs() > racy
}

// readFile reads a file if it has changed, and logs a fault of it when it begins, changes and ends.
func (m *Manifests) readFile(path string) {
	file := m.files[path]
	if file == nil {
		file = new(manifestFile)
		m.files[path] = file
	}
	if info, err := os.Stat(path); err == nil && file.unchanged(info) {
		return
	}
	before := file.err
	isNew, err := m.decodeFile(path, file)
	switch file.err = err; {
	case err != nil && (before == nil || before.Error() != err.Error()):
		m.log.Error("manifest cannot be read, its last good objects stay", "err", err, "path", path, "objects", len(file.changes))
	case err == nil && before != nil:
		m.log.Info("manifest can be read again", "path", path, "objects", len(file.changes))
	case err == nil && isNew:
		m.log.Debug("manifest read", "path", path, "objects", len(file.changes))
	}
}

// decodeFile reads a file, and decodes it if its text is not the one that was decoded last.
func (m *Manifests) decodeFile(path string, file *manifestFile) (isNew bool, err error) {
	began := time.Now()
	text, info, err := readRegular(path)
	if err != nil {
		file.info = nil
		return false, err
	}
	known := file.info != nil
	file.info, file.read = info, began
	sum := sha256.Sum256(text)
	if known && sum == file.sum {
		return false, file.err
	}
	file.sum = sum
	objects, err := decodeManifests(path, text)
	if err != nil {
		return false, err
	}
	file.good, m.changed = true, true
	file.changes = file.changes[:0:0]
	for _, o := range objects {
		for _, set := range m.sets {
			if set.Kind == o.kind && set.selects(o.object.(metav1.Object)) {
				file.changes = append(file.changes, set.change(o.object))
			}
		}
	}
	return true, nil
}

// ReadFile returns the text of a regular file of at most MaxFileSize octets. It never waits for somebody to write.
func ReadFile(path string) ([]byte, error) {
	text, _, err := readRegular(path)
	return text, err
}

func readRegular(path string) ([]byte, fs.FileInfo, error) {
	// Without O_NONBLOCK the open of a pipe waits for its other end.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxFileSize+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > MaxFileSize {
		return nil, nil, fmt.Errorf("%s: is too large: want at most %d MiB", path, MaxFileSize>>20)
	}
	return text, info, nil
}

func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	if info.IsDir() {
		return fmt.Errorf("%s: is a folder: want a file", path)
	}
	return fmt.Errorf("%s: is no regular file (%s): want one", path, info.Mode().Type())
}
