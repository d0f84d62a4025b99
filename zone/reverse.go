package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// The trees of reverse names (RFC 1035 §3.5, RFC 3596 §2.5).
const (
	reverse4 Name = "\x07in-addr\x04arpa\x00"
	reverse6 Name = "\x03ip6\x04arpa\x00"
)

// reverseName returns the name at which the PTR record of an address stands.
func reverseName(addr netip.Addr) Name {
	if addr.Is4() {
		return reverse4Name(addr.As4(), 4)
	}
	return reverse6Name(addr.As16(), 32)
}

// reverse4Name returns the reverse name of the first octets of an address.
func reverse4Name(addr [4]byte, octets int) Name {
	wire := make([]byte, 0, 4*4+len(reverse4))
	for i := octets - 1; i >= 0; i-- {
		at := len(wire)
		wire = strconv.AppendUint(append(wire, 0), uint64(addr[i]), 10)
		wire[at] = byte(len(wire) - at - 1)
	}
	return Name(append(wire, reverse4...))
}

// reverse6Name returns the reverse name of the first nibbles of an address.
func reverse6Name(addr [16]byte, nibbles int) Name {
	wire := make([]byte, 0, 32*2+len(reverse6))
	for i := nibbles - 1; i >= 0; i-- {
		nibble := addr[i/2] >> (4 - i%2*4) & 0xf
		wire = append(wire, 1, "0123456789abcdef"[nibble])
	}
	return Name(append(wire, reverse6...))
}

// isReverseName tells whether a name is the reverse name of some address.
func isReverseName(name Name) bool {
	var labels [32]string // the first label first
	n := 0
	for ; name != reverse4 && name != reverse6; n++ {
		parent, ok := name.Parent()
		if !ok || n == len(labels) {
			return false
		}
		labels[n] = name.Label()
		name = parent
	}
	if name == reverse6 {
		return n == 32 && !slices.ContainsFunc(labels[:n], func(label string) bool { return !isNibble(label) })
	}
	return n == 4 && !slices.ContainsFunc(labels[:n], func(label string) bool { return !isOctet(label) })
}

func isNibble(label string) bool {
	return len(label) == 1 && ('0' <= label[0] && label[0] <= '9' || 'a' <= label[0] && label[0] <= 'f')
}

func isOctet(label string) bool {
	v, err := strconv.ParseUint(label, 10, 8)
	return err == nil && strconv.FormatUint(v, 10) == label
}

// reverseApexes returns the apexes of the zones that hold the reverse names of the ranges, in canonical order. A range
// that does not end at a label, as 10.78.0.0/15, is cut into zones at the next longer one: at most 128 of them, and 8
// for IPv6. An apex inside another is left out, as its names are in that zone already.
func reverseApexes(ranges []netip.Prefix) ([]Name, error) {
	var apexes []Name
	for _, p := range ranges {
		if !p.IsValid() {
			return nil, fmt.Errorf("reverse range %s is not a range of addresses", p)
		}
		label := 8 // bits
		if p.Addr().Is6() {
			label = 4
		}
		p = p.Masked()
		labels := (p.Bits() + label - 1) / label
		for i := range byte(1) << (labels*label - p.Bits()) {
			// The last label of the range is the only one that differs.
			if addr := p.Addr(); addr.Is4() {
				octets := addr.As4()
				octets[max(labels-1, 0)] += i
				apexes = append(apexes, reverse4Name(octets, labels))
			} else {
				octets := addr.As16()
				octets[max(labels-1, 0)/2] += i << (labels % 2 * 4)
				apexes = append(apexes, reverse6Name(octets, labels))
			}
		}
	}
	slices.SortFunc(apexes, Name.Compare)
	// In this order an apex comes right before those inside it.
	outer := apexes[:0]
	for _, apex := range apexes {
		if len(outer) == 0 || !apex.In(outer[len(outer)-1]) {
			outer = append(outer, apex)
		}
	}
	return outer, nil
}
