package zone

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestReverseRangesAreCutAtLabels(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("0.", n) }
	for _, test := range []struct {
		ranges      string
		n           int
		first, last string
	}{
		{"0.0.0.0/0", 1, "in-addr.arpa.", "in-addr.arpa."},
		{"0.0.0.0/1", 128, "0.in-addr.arpa.", "99.in-addr.arpa."}, // canonical order is that of text
		{"128.0.0.0/1", 128, "128.in-addr.arpa.", "255.in-addr.arpa."},
		{"10.0.0.0/7", 2, "10.in-addr.arpa.", "11.in-addr.arpa."},
		{"10.0.0.0/8", 1, "10.in-addr.arpa.", "10.in-addr.arpa."},
		{"10.128.0.0/9", 128, "128.10.in-addr.arpa.", "255.10.in-addr.arpa."},
		{"10.78.0.0/15", 2, "78.10.in-addr.arpa.", "79.10.in-addr.arpa."},
		{"10.78.0.0/16", 1, "78.10.in-addr.arpa.", "78.10.in-addr.arpa."},
		{"192.0.2.0/24", 1, "2.0.192.in-addr.arpa.", "2.0.192.in-addr.arpa."},
		{"192.0.2.128/25", 128, "128.2.0.192.in-addr.arpa.", "255.2.0.192.in-addr.arpa."},
		{"10.0.0.64/26", 64, "100.0.0.10.in-addr.arpa.", "99.0.0.10.in-addr.arpa."},
		{"192.0.2.254/31", 2, "254.2.0.192.in-addr.arpa.", "255.2.0.192.in-addr.arpa."},
		{"192.0.2.7/32", 1, "7.2.0.192.in-addr.arpa.", "7.2.0.192.in-addr.arpa."},
		{"192.0.2.7/24", 1, "2.0.192.in-addr.arpa.", "2.0.192.in-addr.arpa."}, // host bits

		{"::/0", 1, "ip6.arpa.", "ip6.arpa."},
		{"8000::/1", 8, "8.ip6.arpa.", "f.ip6.arpa."},
		{"2000::/3", 2, "2.ip6.arpa.", "3.ip6.arpa."},
		{"f000::/4", 1, "f.ip6.arpa.", "f.ip6.arpa."},
		{"2001:db8:2::/47", 2, "2.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", "3.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8:2::/48", 1, "2.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", "2.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8:0:e::/63", 2, "e." + zeros(7) + "8.b.d.0.1.0.0.2.ip6.arpa.", "f." + zeros(7) + "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8:0:e::/64", 1, "e." + zeros(7) + "8.b.d.0.1.0.0.2.ip6.arpa.", "e." + zeros(7) + "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8::8/125", 8, "8." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa.", "f." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8::80/121", 8, "8." + zeros(22) + "8.b.d.0.1.0.0.2.ip6.arpa.", "f." + zeros(22) + "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8::a/127", 2, "a." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa.", "b." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8::a/128", 1, "a." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa.", "a." + zeros(23) + "8.b.d.0.1.0.0.2.ip6.arpa."},

		{"10.0.0.0/8 10.0.0.0/8", 1, "10.in-addr.arpa.", "10.in-addr.arpa."},
		{"10.1.0.0/15 10.0.0.0/8 10.1.2.3/32", 1, "10.in-addr.arpa.", "10.in-addr.arpa."},
		{"10.0.0.0/15 10.1.2.0/24", 2, "0.10.in-addr.arpa.", "1.10.in-addr.arpa."},
		{"2001:db8::/32 ::/0 0.0.0.0/0 192.0.2.0/25", 2, "in-addr.arpa.", "ip6.arpa."},
		{"1.0.0.0/8 11.0.0.0/8", 2, "1.in-addr.arpa.", "11.in-addr.arpa."},
	} {
		var ranges []netip.Prefix
		for text := range strings.FieldsSeq(test.ranges) {
			ranges = append(ranges, netip.MustParsePrefix(text))
		}
		apexes, err := reverseApexes(ranges)
		if err != nil || len(apexes) != test.n ||
			apexes[0].String() != test.first || apexes[len(apexes)-1].String() != test.last {
			t.Errorf("%s: got %v, %v; want %d from %s to %s", test.ranges, apexes, err, test.n, test.first, test.last)
		}
	}
	if apexes, err := reverseApexes([]netip.Prefix{{}}); err == nil {
		t.Errorf("no range: got %v and no error", apexes)
	}
}

// Every address of a range has its reverse name in exactly one of the range's zones, and its neighbours have not.
func TestARangeHoldsExactlyItsAddresses(t *testing.T) {
	for bits := range 129 {
		for _, text := range []string{"10.78.201.77", "2001:db8:1234:5678:9abc:def0:1234:5678"} {
			addr := netip.MustParseAddr(text)
			if bits > addr.BitLen() {
				continue
			}
			p := netip.PrefixFrom(addr, bits)
			apexes, err := reverseApexes([]netip.Prefix{p})
			if err != nil {
				t.Fatal(err)
			}
			for flipped := range addr.BitLen() + 1 {
				near := addr.AsSlice()
				if flipped < addr.BitLen() {
					near[flipped/8] ^= 0x80 >> (flipped % 8)
				}
				other, _ := netip.AddrFromSlice(near)
				zones := 0
				for _, apex := range apexes {
					if reverseName(other).In(apex) {
						zones++
					}
				}
				if want := map[bool]int{true: 1}[p.Contains(other)]; zones != want {
					t.Errorf("%s in %s: in %d zones, want %d", other, p, zones, want)
				}
			}
		}
	}
}

func TestReverseNames(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.10": "10.2.0.192.in-addr.arpa.", "0.0.0.0": "0.0.0.0.in-addr.arpa.",
		// The example of RFC 3596 §2.5.
		"4321:0:1:2:3:4:567:89ab": "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa.",
	} {
		name := reverseName(netip.MustParseAddr(addr))
		if name.String() != want || !isReverseName(name) {
			t.Errorf("%s: got %s, a reverse name: %v; want %s", addr, name, isReverseName(name), want)
		}
	}
	nibbles := strings.Repeat("0.", 31)
	for _, text := range []string{
		".", "arpa.", "in-addr.arpa.", "2.0.192.in-addr.arpa.", "1.10.2.0.192.in-addr.arpa.", "256.2.0.192.in-addr.arpa.",
		"010.2.0.192.in-addr.arpa.", "+1.2.0.192.in-addr.arpa.", "a.2.0.192.in-addr.arpa.", "10.2.0.192.in-addr.test.",
		"ip6.arpa.", nibbles + "ip6.arpa.", "g." + nibbles + "ip6.arpa.", "00." + nibbles + "ip6.arpa.",
		"0.0." + nibbles + "ip6.arpa.", "10.2.0.192.ip6.arpa.", fmt.Sprint("0.", nibbles, "in-addr.arpa."),
	} {
		if isReverseName(mustName(t, text)) {
			t.Errorf("%s: taken for the reverse name of an address", text)
		}
	}
}
