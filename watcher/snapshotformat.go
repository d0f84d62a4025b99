package watcher

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"peerdns/zone"
)

// A snapshot file is lines of text (docs/adr/0007-snapshot.md):
//
//	peerdns snapshot 1
//	{"config":"…","time":"…","serials":{"peers.test.":1764566466}}
//	{"object":"endpointslice/shop/web-a","peers":[…]}         one for each object, sorted
//	sha256 …                                                  of all lines above
//
// There is one way to write a state, and the reader takes nothing else: each line must be what the writer would have made
// of what it says.

const (
	snapshotMagic   = "peerdns snapshot "
	snapshotVersion = 1
	snapshotEnd     = "sha256 "
	snapshotEndSize = len(snapshotEnd) + 2*sha256.Size + len("\n")
)

// Why a snapshot is not used.
var (
	errSnapshotForeign = errors.New("not a snapshot of peerdns")
	errSnapshotVersion = errors.New("of another version")
	errSnapshotDamaged = errors.New("damaged or cut short")
)

// snapshotHead says what a snapshot is of.
type snapshotHead struct {
	Config  string            `json:"config"`            // see Fingerprint
	Time    time.Time         `json:"time"`              // when the sources last said that this is how it is; in UTC
	Serials map[string]uint32 `json:"serials,omitempty"` // by zone, see zone.View.Serials
}

// snapshotObject is a zone.Change in the file.
type snapshotObject struct {
	Object   string              `json:"object"`
	Peers    []snapshotPeer      `json:"peers,omitempty"`
	Excluded []snapshotExclusion `json:"excluded,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
}

type snapshotPeer struct {
	Namespace string         `json:"namespace,omitempty"`
	Service   string         `json:"service,omitempty"`
	Hostname  string         `json:"hostname,omitempty"`
	Target    zone.Name      `json:"target,omitempty"` // in presentation form, which holds every octet of a name
	Pod       string         `json:"pod,omitempty"`
	NodeName  string         `json:"nodeName,omitempty"`
	Addrs     []netip.Addr   `json:"addrs,omitempty"`
	Ports     []snapshotPort `json:"ports,omitempty"`
}

type snapshotPort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Number   uint16 `json:"number"`
}

type snapshotExclusion struct {
	Reason zone.Reason `json:"reason"`
	snapshotPeer
}

// writeSnapshot writes a snapshot. Its errors are the writer's.
func writeSnapshot(out io.Writer, head snapshotHead, objects iter.Seq[zone.Change]) error {
	sorted := slices.SortedStableFunc(objects, func(a, b zone.Change) int { return strings.Compare(a.Object, b.Object) })
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	fmt.Fprintf(buffered, "%s%d\n", snapshotMagic, snapshotVersion) // an error stays with the writer until Flush
	lines := json.NewEncoder(buffered)
	if err := lines.Encode(head); err != nil {
		return err
	}
	for i := range sorted {
		if err := lines.Encode(storedObject(&sorted[i])); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s%x\n", snapshotEnd, sum.Sum(nil))
	return err
}

// readSnapshot reads what writeSnapshot wrote, all of it, or says why not. The head is checked before the objects are
// read; its error is returned as it is.
func readSnapshot(text []byte, check func(snapshotHead) error) (snapshotHead, []zone.Change, error) {
	var head snapshotHead
	rest, err := snapshotBody(text)
	if err != nil {
		return head, nil, err
	}
	line, rest, _ := bytes.Cut(rest, []byte("\n"))
	if err := readSnapshotLine(line, &head); err != nil {
		return head, nil, fmt.Errorf("line 2: %w", err)
	}
	if head.Time.Location() != time.UTC {
		return head, nil, fmt.Errorf("line 2: %w: the time is not in UTC", errSnapshotDamaged)
	}
	if err := check(head); err != nil {
		return head, nil, err
	}
	changes := make([]zone.Change, 0, bytes.Count(rest, []byte("\n")))
	for number := 3; len(rest) > 0; number++ {
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		var object snapshotObject
		err := readSnapshotLine(line, &object)
		if err == nil {
			err = object.validate()
		}
		if n := len(changes); err == nil && n > 0 && object.Object < changes[n-1].Object {
			err = fmt.Errorf("%w: not in order", errSnapshotDamaged)
		}
		if err != nil {
			return head, nil, fmt.Errorf("line %d: %w", number, err)
		}
		changes = append(changes, object.change())
	}
	return head, changes, nil
}

// snapshotBody checks the first line and the last, and returns the lines between them.
func snapshotBody(text []byte) ([]byte, error) {
	version, isSnapshot := bytes.CutPrefix(text, []byte(snapshotMagic))
	if !isSnapshot {
		return nil, errSnapshotForeign
	}
	version, rest, whole := bytes.Cut(version, []byte("\n"))
	switch {
	case !whole:
		return nil, errSnapshotDamaged
	case string(version) != strconv.Itoa(snapshotVersion):
		return nil, fmt.Errorf("%w: %.20q, want %d", errSnapshotVersion, version, snapshotVersion)
	case len(rest) <= snapshotEndSize:
		return nil, errSnapshotDamaged
	}
	end := len(text) - snapshotEndSize
	sum := sha256.Sum256(text[:end])
	// The text of the sum is compared, not its value: no octet of the file may differ.
	if string(text[end:]) != snapshotEnd+hex.EncodeToString(sum[:])+"\n" {
		return nil, fmt.Errorf("%w: the checksum does not match", errSnapshotDamaged)
	}
	if text[end-1] != '\n' {
		return nil, errSnapshotDamaged
	}
	return rest[:len(rest)-snapshotEndSize], nil
}

// readSnapshotLine reads a line into a value, if the line is the one that is written for that value.
func readSnapshotLine(line []byte, value any) error {
	if err := json.Unmarshal(line, value); err != nil {
		return fmt.Errorf("%w: %w", errSnapshotDamaged, err)
	}
	again, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%w: %w", errSnapshotDamaged, err)
	}
	if !bytes.Equal(line, again) {
		return fmt.Errorf("%w: not as it is written", errSnapshotDamaged)
	}
	return nil
}

// validate checks what zone.Peer asks of its addresses.
func (o *snapshotObject) validate() error {
	check := func(p *snapshotPeer) error {
		for _, addr := range p.Addrs {
			if !addr.IsValid() || addr != addr.Unmap().WithZone("") {
				return fmt.Errorf("%w: address %s", errSnapshotDamaged, addr)
			}
		}
		return nil
	}
	for i := range o.Peers {
		if err := check(&o.Peers[i]); err != nil {
			return err
		}
	}
	for i := range o.Excluded {
		if err := check(&o.Excluded[i].snapshotPeer); err != nil {
			return err
		}
	}
	return nil
}

func storedObject(c *zone.Change) *snapshotObject {
	o := &snapshotObject{Object: text(c.Object)}
	for i := range c.Peers {
		o.Peers = append(o.Peers, storedPeer(&c.Peers[i]))
	}
	for i := range c.Excluded {
		e := &c.Excluded[i]
		o.Excluded = append(o.Excluded, snapshotExclusion{zone.Reason(text(string(e.Reason))), storedPeer(&e.Peer)})
	}
	for _, warning := range c.Warnings {
		o.Warnings = append(o.Warnings, text(warning))
	}
	return o
}

func (o *snapshotObject) change() zone.Change {
	c := zone.Change{Object: o.Object, Warnings: o.Warnings}
	for i := range o.Peers {
		c.Peers = append(c.Peers, o.Peers[i].peer())
	}
	for i := range o.Excluded {
		c.Excluded = append(c.Excluded, zone.Exclusion{Peer: o.Excluded[i].peer(), Reason: o.Excluded[i].Reason})
	}
	return c
}

func storedPeer(p *zone.Peer) snapshotPeer {
	stored := snapshotPeer{
		Namespace: text(p.Namespace), Service: text(p.Service), Hostname: text(p.Hostname), Target: p.Target,
		Pod: text(p.Pod), NodeName: text(p.NodeName), Addrs: p.Addrs,
	}
	for _, port := range p.Ports {
		stored.Ports = append(stored.Ports, snapshotPort{text(port.Name), text(port.Protocol), port.Number})
	}
	return stored
}

func (p *snapshotPeer) peer() zone.Peer {
	peer := zone.Peer{
		Namespace: p.Namespace, Service: p.Service, Hostname: p.Hostname, Target: p.Target,
		Pod: p.Pod, NodeName: p.NodeName, Addrs: p.Addrs,
	}
	for _, port := range p.Ports {
		peer.Ports = append(peer.Ports, zone.Port{Name: port.Name, Protocol: port.Protocol, Number: port.Number})
	}
	return peer
}

// text returns a string as JSON can hold it: an octet that is no UTF-8 would be read back as another text than was
// written, and a snapshot that its own writer spoiled is worse than one odd character.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
