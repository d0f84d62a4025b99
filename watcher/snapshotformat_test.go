package watcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"peerdns/zone"
)

var snapshotTime = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

func anyHead(snapshotHead) error { return nil }

func snapshotText(t testing.TB, head snapshotHead, changes ...zone.Change) []byte {
	t.Helper()
	var text bytes.Buffer
	must(t, writeSnapshot(&text, head, slices.Values(changes)))
	return text.Bytes()
}

// smallSnapshot has one of everything.
func smallSnapshot(t testing.TB) []byte {
	peer := peerOf("192.0.2.1", "2001:db8::1")
	peer.Hostname, peer.Pod, peer.NodeName = "web-0", "web-0", "web-0@192.0.2.1"
	peer.Target = "\x03far\x04test\x00"
	peer.Ports = []zone.Port{{Name: "http", Protocol: "tcp", Number: 80}, {Number: 1}}
	return snapshotText(t, snapshotHead{Config: "c", Time: snapshotTime, Serials: map[string]uint32{"peers.test.": 7, ".": 9}},
		zone.Change{Object: "b", Peers: []zone.Peer{peer}, Warnings: []string{"odd <&>"}},
		zone.Change{Object: "a", Excluded: []zone.Exclusion{{Peer: peer, Reason: zone.Terminating}}})
}

func TestEveryPrefixOfASnapshotIsRefused(t *testing.T) {
	whole := smallSnapshot(t)
	if _, changes, err := readSnapshot(whole, anyHead); err != nil || len(changes) != 2 {
		t.Fatalf("whole: got %d objects, %v, want 2", len(changes), err)
	}
	for n := range whole {
		if _, _, err := readSnapshot(whole[:n], anyHead); err == nil {
			t.Errorf("the first %d of %d octets are taken", n, len(whole))
		}
	}
	if _, _, err := readSnapshot(append(slices.Clone(whole), '\n'), anyHead); err == nil {
		t.Error("one more octet is taken")
	}
}

func TestEveryFlippedOctetIsRefused(t *testing.T) {
	whole := smallSnapshot(t)
	for i := range whole {
		for _, flip := range []byte{1, 1 << 5, 1 << 7, 0xff} { // 1<<5 turns the case of a letter, as in the checksum
			damaged := slices.Clone(whole)
			damaged[i] ^= flip
			if _, _, err := readSnapshot(damaged, anyHead); err == nil {
				t.Errorf("octet %d of %q is taken as %q", i, whole[i], damaged[i])
			}
		}
	}
}

// seal gives lines the first line and a checksum that fits.
func seal(lines string) []byte {
	text := fmt.Sprintf("%s%d\n%s", snapshotMagic, snapshotVersion, lines)
	sum := sha256.Sum256([]byte(text))
	return []byte(text + snapshotEnd + hex.EncodeToString(sum[:]) + "\n")
}

// The checksum fits, and still: a line that we would not have written is not ours.
func TestLinesThatAreNotOurs(t *testing.T) {
	const head = `{"config":"c","time":"2026-01-02T03:04:05Z"}` + "\n"
	if _, _, err := readSnapshot(seal(head), anyHead); err != nil {
		t.Fatalf("no objects: got %v", err)
	}
	for name, lines := range map[string]string{
		"no head":               "",
		"an empty head":         "\n",
		"no time":               `{"config":"c"}` + "\n",
		"a local time":          `{"config":"c","time":"2026-01-02T03:04:05+01:00"}` + "\n",
		"no end of line":        head + `{"object":"a"}`,
		"an empty line":         head + "\n",
		"space":                 head + `{"object": "a"}` + "\n",
		"other case":            head + `{"Object":"a"}` + "\n",
		"unknown key":           head + `{"object":"a","more":1}` + "\n",
		"a key twice":           head + `{"object":"a","object":"b"}` + "\n",
		"null":                  head + "null\n",
		"an empty list":         head + `{"object":"a","peers":[]}` + "\n",
		"two values":            head + `{"object":"a"}{"object":"b"}` + "\n",
		"not in order":          head + `{"object":"b"}` + "\n" + `{"object":"a"}` + "\n",
		"no UTF-8":              head + "{\"object\":\"\xff\"}\n",
		"an address in zone":    head + `{"object":"a","peers":[{"addrs":["fe80::1%eth0"]}]}` + "\n",
		"a mapped address":      head + `{"object":"a","peers":[{"addrs":["::ffff:192.0.2.1"]}]}` + "\n",
		"no address":            head + `{"object":"a","peers":[{"addrs":[""]}]}` + "\n",
		"no address, excluded":  head + `{"object":"a","excluded":[{"reason":"failed","addrs":[""]}]}` + "\n",
		"an IPv6 form":          head + `{"object":"a","peers":[{"addrs":["2001:db8:0::1"]}]}` + "\n",
		"a name in upper case":  head + `{"object":"a","peers":[{"target":"A.test."}]}` + "\n",
		"a name without dot":    head + `{"object":"a","peers":[{"target":"a.test"}]}` + "\n",
		"no name":               head + `{"object":"a","peers":[{"target":"a..test."}]}` + "\n",
		"a port that is none":   head + `{"object":"a","peers":[{"ports":[{"number":65536}]}]}` + "\n",
		"a port with no number": head + `{"object":"a","peers":[{"ports":[{"name":"http"}]}]}` + "\n",
	} {
		if _, _, err := readSnapshot(seal(lines), anyHead); !errors.Is(err, errSnapshotDamaged) {
			t.Errorf("%s: got %v, want %v", name, err, errSnapshotDamaged)
		}
	}
}

// Whatever octets names and texts are of, what is read is what was written, and it makes the same zones.
func TestASnapshotHoldsWhatWasThere(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 4))
		store := newStore(t)
		for range 30 {
			store.Apply(randomChange(random))
		}
		view := store.View()
		head := snapshotHead{Config: "c", Time: snapshotTime, Serials: map[string]uint32{}}
		for apex, serial := range view.Serials() {
			head.Serials[apex.String()] = serial
		}
		var text bytes.Buffer
		must(t, writeSnapshot(&text, head, view.Objects()))
		gotHead, changes, err := readSnapshot(text.Bytes(), anyHead)
		must(t, err)
		if diff := cmp.Diff(head, gotHead); diff != "" {
			t.Fatalf("seed %d: the head differs (-written +read):\n%s", seed, diff)
		}
		byName := cmpopts.SortSlices(func(a, b zone.Change) bool { return a.Object < b.Object })
		addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if diff := cmp.Diff(slices.Collect(view.Objects()), changes, byName, addrs, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: objects differ (-written +read):\n%s", seed, diff)
		}
		again := newStore(t)
		again.Apply(changes...)
		if diff := cmp.Diff(recordsOf(t, view), recordsOf(t, again.View())); diff != "" {
			t.Fatalf("seed %d: zones differ (-written +read):\n%s", seed, diff)
		}
		if diff := cmp.Diff(view.Excluded(), again.View().Excluded(), addrs, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: exclusions differ (-written +read):\n%s", seed, diff)
		}
		if diff := cmp.Diff(view.Warnings(), again.View().Warnings()); diff != "" {
			t.Fatalf("seed %d: warnings differ (-written +read):\n%s", seed, diff)
		}
	}
}

// recordsOf returns the lines of the master file but for the SOA, whose serial counts the changes on the way.
func recordsOf(t testing.TB, view *zone.View) []string {
	return slices.DeleteFunc(strings.Split(masterText(t, view), "\n"), func(line string) bool { return strings.Contains(line, "\tSOA\t") })
}

func randomChange(random *rand.Rand) zone.Change {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	peer := func() zone.Peer {
		p := zone.Peer{
			Namespace: pick("shop", "bank", "n\u00e4h"), Service: pick("web", "", "a\"b\\c<>&\u2028"), Hostname: pick("", "web-0", "web-1"),
			Pod: pick("", "web-0", "\x00\x7f"), NodeName: pick("", "a@b", "\ufffd"),
		}
		if random.IntN(3) == 0 {
			label := make([]byte, 1+random.IntN(20))
			for i := range label {
				label[i] = byte(random.IntN(256))
			}
			p.Target = zone.Canonical(append(append([]byte{byte(len(label))}, label...), "\x04test\x00"...))
		}
		for range 1 + random.IntN(3) {
			if random.IntN(2) == 0 {
				p.Addrs = append(p.Addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(9))}))
			} else {
				p.Addrs = append(p.Addrs, netip.AddrFrom16([16]byte{0x20, 1, 13, 0xb8, 15: byte(random.IntN(9))}))
			}
		}
		for range random.IntN(3) {
			p.Ports = append(p.Ports, zone.Port{Name: pick("", "http"), Protocol: pick("tcp", "udp"), Number: uint16(random.IntN(1 << 16))})
		}
		return p
	}
	c := zone.Change{Object: fmt.Sprint("object/", random.IntN(15))}
	for range random.IntN(4) {
		c.Peers = append(c.Peers, peer())
	}
	for range random.IntN(3) {
		c.Excluded = append(c.Excluded, zone.Exclusion{Peer: peer(), Reason: zone.Reasons[random.IntN(len(zone.Reasons))]})
	}
	for range random.IntN(2) {
		c.Warnings = append(c.Warnings, pick("odd", "line\nbreak", "\u2029"))
	}
	return c
}

// An octet that JSON cannot hold must not make a file that its own writer refuses.
func TestTextThatIsNoUTF8IsStillRead(t *testing.T) {
	text := snapshotText(t, snapshotHead{Time: snapshotTime}, zone.Change{Object: "a\xff", Warnings: []string{"\xfe"}})
	_, changes, err := readSnapshot(text, anyHead)
	if err != nil || changes[0].Object != "a\ufffd" {
		t.Errorf("got %v, %v", changes, err)
	}
}

// Any octets: an error, or a state that is written as it was read. The other half of the inputs has a checksum that fits.
func FuzzSnapshot(f *testing.F) {
	small := smallSnapshot(f)
	lines := small[len(snapshotMagic)+2 : len(small)-snapshotEndSize]
	f.Add(small, false)
	f.Add(lines, true)
	f.Add([]byte(`{"config":"","time":"0001-01-01T00:00:00Z"}`+"\n"+`{"object":"\ufffd"}`+"\n"), true)
	f.Fuzz(func(t *testing.T, in []byte, sealed bool) {
		if sealed {
			in = seal(string(in))
		}
		head, changes, err := readSnapshot(in, anyHead)
		if err != nil {
			return
		}
		newStore(t).Apply(changes...)
		if out := snapshotText(t, head, changes...); !bytes.Equal(in, out) {
			t.Errorf("got  %q\nfrom %q", out, in)
		}
	})
}
