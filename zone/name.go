package zone

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/miekg/dns"
)

// Name is an absolute domain name in canonical wire form (RFC 4034 §6.2): length-prefixed labels in lower case,
// uncompressed, ending with the root's zero octet, at most 255 octets. Two Names are the same name exactly when
// they are equal, and a dot inside a label is no special case. The zero value is no name.
type Name string

// Limits of RFC 1035 §2.3.4, in octets.
const (
	maxName  = 255
	maxLabel = 63
)

// Root is the root of the name space, ".".
const Root Name = "\x00"

// ErrName is what ParseName and Name.Child return for text that is no domain name.
var ErrName = errors.New("not a domain name")

// ParseName reads a name in presentation form (RFC 1035 §5.1); the final dot may be left out.
func ParseName(s string) (Name, error) {
	var buf [maxName]byte
	end, err := dns.PackDomainName(dns.Fqdn(s), buf[:], 0, nil, false)
	if err != nil || s == "" {
		return "", fmt.Errorf("%q: %w", s, ErrName)
	}
	return Canonical(buf[:end]), nil
}

// Canonical returns the canonical form of an uncompressed, valid wire-form name.
func Canonical(wire []byte) Name {
	lower := make([]byte, len(wire))
	for i, c := range wire {
		// Length octets are at most 63 and so never in A-Z.
		lower[i] = lowerASCII(c)
	}
	return Name(lower)
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// String returns the presentation form, with the final dot; what is not printable, or special, is escaped.
func (n Name) String() string {
	s, _, err := dns.UnpackDomainName([]byte(n), 0)
	if err != nil {
		return fmt.Sprintf("zone.Name(%q)", string(n))
	}
	return s
}

// UnmarshalText reads the presentation form.
func (n *Name) UnmarshalText(text []byte) error {
	name, err := ParseName(string(text))
	if err != nil {
		return err
	}
	*n = name
	return nil
}

// MarshalText returns the presentation form.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// Parent returns the name without its first label; the root has none.
func (n Name) Parent() (Name, bool) {
	if len(n) <= 1 {
		return "", false
	}
	return n[1+n[0]:], true
}

// Label returns the first label as it stands on the wire, and "" for the root.
func (n Name) Label() string {
	if len(n) <= 1 {
		return ""
	}
	return string(n[1 : 1+n[0]])
}

// Child returns the name with one more label in front. The label is lowered; an empty or long label, or a name that
// would become too long, is ErrName.
func (n Name) Child(label string) (Name, error) {
	if label == "" || len(label) > maxLabel {
		return "", fmt.Errorf("label %q: %w: a label has 1 to %d octets", label, ErrName, maxLabel)
	}
	if 1+len(label)+len(n) > maxName {
		return "", fmt.Errorf("%q below %s: %w: a name has at most %d octets", label, n, ErrName, maxName)
	}
	return Name([]byte{byte(len(label))}) + Name(strings.ToLower(label)) + n, nil
}

// Up iterates over the name itself and every name above it, up to the root.
func (n Name) Up() iter.Seq[Name] {
	return func(yield func(Name) bool) {
		for name, ok := n, true; ok; name, ok = name.Parent() {
			if !yield(name) {
				return
			}
		}
	}
}

// In tells whether the name is the apex or a name below it.
func (n Name) In(apex Name) bool {
	// A suffix of the right length is the apex only if it begins at a label.
	for len(n) > len(apex) {
		n = n[1+n[0]:]
	}
	return n == apex
}

// Compare gives the canonical order of names (RFC 4034 §6.1): by label, from the right.
func (n Name) Compare(m Name) int {
	a, b := n.labelOffsets(), m.labelOffsets()
	for i := 1; i <= min(len(a), len(b)); i++ {
		if c := cmp.Compare(n.labelAt(a[len(a)-i]), m.labelAt(b[len(b)-i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func (n Name) labelOffsets() []uint8 {
	offsets := make([]uint8, 0, 8)
	for i := 0; i < len(n) && n[i] != 0; i += 1 + int(n[i]) {
		offsets = append(offsets, uint8(i))
	}
	return offsets
}

func (n Name) labelAt(offset uint8) string {
	return string(n[int(offset)+1 : int(offset)+1+int(n[offset])])
}
