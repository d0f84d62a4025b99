package watcher

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerdns/zone"
)

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
	text, info, err := readWithInfo(path)
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

func readWithInfo(path string) ([]byte, fs.FileInfo, error) {
	// The state before the text: a change in between shows in the next state.
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	return text, info, err
}
