package zone

import (
	"bufio"
	"io"
	"slices"

	"github.com/miekg/dns"
)

// WriteMaster writes the zone with the given apex as a master file (RFC 1035 §5), the SOA first, then in canonical
// order (RFC 4034 §6.1). An apex that Zones does not list writes nothing. Its errors are the writer's.
func (v *View) WriteMaster(w io.Writer, apex Name) error {
	i, ok := v.apexes.zones[apex]
	if !ok {
		return nil
	}
	z := v.zones[i]
	names := make([]Name, 0, 1024)
	for name, n := range z.nodes.all() {
		if len(n.rrsets) > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, Name.Compare)
	out := bufio.NewWriter(w)
	write := func(name Name, set RRset) {
		for _, rr := range set.RRs(name) {
			out.WriteString(rr.String()) // an error stays with the writer until Flush
			out.WriteByte('\n')
		}
	}
	top, _ := z.nodes.get(apex)
	soa, _ := top.rrset(dns.TypeSOA)
	write(apex, soa)
	for _, name := range names {
		n, _ := z.nodes.get(name)
		for _, set := range n.rrsets {
			if set.Type != dns.TypeSOA {
				write(name, set)
			}
		}
	}
	return out.Flush()
}
