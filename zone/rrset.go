package zone

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

// RRset is the records of one type at one name (RFC 9499). Nobody changes it once it is in a View.
type RRset struct {
	Type uint16
	TTL  uint32   // seconds
	Data []string // RDATA in canonical wire form (RFC 4034 §6.2), sorted and without duplicates (§6.3, RFC 2181 §5)
}

// newRRset sorts the RDATA and removes duplicates, in place.
func newRRset(rrtype uint16, ttl uint32, data ...string) RRset {
	slices.Sort(data)
	return RRset{Type: rrtype, TTL: ttl, Data: slices.Compact(data)}
}

func (s RRset) equal(other RRset) bool {
	return s.Type == other.Type && s.TTL == other.TTL && slices.Equal(s.Data, other.Data)
}

// RRs returns the records with the given owner name.
func (s RRset) RRs(owner Name) []dns.RR {
	rrs := make([]dns.RR, 0, len(s.Data))
	header := dns.RR_Header{Name: owner.String(), Rrtype: s.Type, Class: dns.ClassINET, Ttl: s.TTL}
	for _, data := range s.Data {
		header.Rdlength = uint16(len(data))
		rr, _, err := dns.UnpackRRWithHeader(header, []byte(data), 0)
		if err != nil {
			panic(fmt.Sprintf("zone: RDATA of %s %s does not unpack: %v", owner, dns.Type(s.Type), err))
		}
		rrs = append(rrs, rr)
	}
	return rrs
}

// addressData returns the type and the RDATA of an address (RFC 1035 §3.4.1, RFC 3596 §2.2).
func addressData(addr netip.Addr) (rrtype uint16, data string) {
	if addr.Is4() {
		return dns.TypeA, string(addr.AsSlice())
	}
	return dns.TypeAAAA, string(addr.AsSlice())
}

// maxText is the length of the longest string of a TXT record.
const maxText = 255 // octets

// textData returns the RDATA of a TXT record of one string (RFC 1035 §3.3.14), at most maxText octets.
func textData(text string) string {
	return string([]byte{byte(len(text))}) + text
}

// srvRRset makes an SRV RRset (RFC 2782). All targets have priority 0 and share a weight of 100.
func srvRRset(ttl uint32, endpoints []srvEndpoint) RRset {
	slices.SortFunc(endpoints, srvEndpoint.compare)
	endpoints = slices.Compact(endpoints)
	weight := uint16(max(1, 100/len(endpoints)))
	data := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		rdata := make([]byte, 0, 6+len(e.target))
		rdata = binary.BigEndian.AppendUint16(rdata, 0)
		rdata = binary.BigEndian.AppendUint16(rdata, weight)
		rdata = binary.BigEndian.AppendUint16(rdata, e.port)
		data = append(data, string(append(rdata, e.target...)))
	}
	return RRset{Type: dns.TypeSRV, TTL: ttl, Data: data}
}

// soaRRset makes the SOA of a zone (RFC 1035 §3.3.13).
func soaRRset(nameServer, mailbox Name, serial, ttl, negativeTTL uint32) RRset {
	rdata := []byte(nameServer + mailbox)
	for _, v := range [...]uint32{serial, soaRefresh, soaRetry, soaExpire, negativeTTL} {
		rdata = binary.BigEndian.AppendUint32(rdata, v)
	}
	return RRset{Type: dns.TypeSOA, TTL: ttl, Data: []string{string(rdata)}}
}

// Timers of the SOA for secondaries, in seconds: those that CoreDNS gives.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)
