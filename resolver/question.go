package resolver

import (
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// Bits of the second 16 bits of a header (RFC 1035 §4.1.1).
const (
	flagQR     = 1 << 15
	flagAA     = 1 << 10
	flagTC     = 1 << 9
	flagRD     = 1 << 8
	maskOpcode = 0xF << 11
)

const (
	headerLen      = 12
	maxName        = 255 // octets, RFC 1035 §2.3.4
	recordFixedLen = 10  // octets of a record between its owner name and its RDATA
)

// errForm is any fault in the form of a message.
var errForm = errors.New("format error")

// query is what a message asks, as far as it could be read.
type query struct {
	id    uint16
	flags uint16
	rcode int // why it cannot be answered; RcodeSuccess if it can be

	question      []byte    // the question section as it came; nil unless it is one well-formed question
	name          zone.Name // of the question
	qtype, qclass uint16

	opt  *opt      // nil without one
	tsig *dns.TSIG // nil without one
}

// parseQuery reads a message. It returns false for what deserves no reply: a message too short to have an identifier
// and counts, and a response, since two servers answering each other's answers would never stop.
//
// Of several faults NOTIMP comes first, as the form of other opcodes is not ours to judge; then FORMERR; then NOTAUTH
// for a signature, since there is no key that we share with anybody (RFC 8945 §5.2.1); then BADVERS.
func parseQuery(msg []byte) (query, bool) {
	if len(msg) < headerLen {
		return query{}, false
	}
	q := query{id: binary.BigEndian.Uint16(msg), flags: binary.BigEndian.Uint16(msg[2:])}
	if q.flags&flagQR != 0 {
		return query{}, false
	}
	err := q.readSections(msg)
	switch {
	case q.flags&maskOpcode != dns.OpcodeQuery<<11:
		q.rcode = dns.RcodeNotImplemented
	case err != nil || q.question == nil && !q.forCookie(msg):
		q.rcode = dns.RcodeFormatError
	case q.tsig != nil:
		q.rcode = dns.RcodeNotAuth
	case q.opt != nil && q.opt.version > 0:
		q.rcode = dns.RcodeBadVers
	}
	return q, true
}

// forCookie tells whether the query has no question and asks for a cookie only (RFC 7873 §5.4).
func (q *query) forCookie(msg []byte) bool {
	return binary.BigEndian.Uint16(msg[4:]) == 0 && q.opt != nil && q.opt.version == 0 && q.opt.cookie != nil
}

// readSections reads all sections, also where there is not exactly one question, because an OPT may follow, which
// asks for one in the reply.
func (q *query) readSections(msg []byte) error {
	off := headerLen
	questions := int(binary.BigEndian.Uint16(msg[4:]))
	for range questions {
		end, err := q.readQuestion(msg, off)
		if err != nil {
			return err
		}
		if questions == 1 {
			q.question = msg[off:end]
		}
		off = end
	}
	for section := range 3 { // answer, authority, additional
		for range binary.BigEndian.Uint16(msg[6+2*section:]) {
			var err error
			if off, err = q.readRecord(msg, off, section == 2); err != nil {
				return err
			}
		}
	}
	if off != len(msg) {
		return errForm // trailing octets: sender and receiver disagree about what was sent
	}
	return nil
}

// readQuestion reads a question and returns its end. Compression is a fault: there is nothing before that a pointer
// could mean.
func (q *query) readQuestion(msg []byte, off int) (int, error) {
	end := off
	for {
		if end >= len(msg) || msg[end] > 63 || end+1-off > maxName {
			return 0, errForm
		}
		if msg[end] == 0 {
			break
		}
		end += 1 + int(msg[end])
	}
	end++
	if end+4 > len(msg) {
		return 0, errForm
	}
	q.name = zone.Canonical(msg[off:end])
	q.qtype = binary.BigEndian.Uint16(msg[end:])
	q.qclass = binary.BigEndian.Uint16(msg[end+2:])
	return end + 4, nil
}

// readRecord reads a record and returns its end. None but OPT and TSIG matter, so the RDATA of the others is skipped.
func (q *query) readRecord(msg []byte, off int, additional bool) (int, error) {
	if q.tsig != nil {
		return 0, errForm // it must be the last (RFC 8945 §5.1)
	}
	_, fixed, err := dns.UnpackDomainName(msg, off)
	if err != nil || fixed+recordFixedLen > len(msg) {
		return 0, errForm
	}
	rdata := fixed + recordFixedLen
	end := rdata + int(binary.BigEndian.Uint16(msg[fixed+8:]))
	if end > len(msg) {
		return 0, errForm
	}
	switch binary.BigEndian.Uint16(msg[fixed:]) {
	case dns.TypeOPT:
	case dns.TypeTSIG:
		return end, q.readTSIG(msg[:end], off, additional)
	default:
		return end, nil
	}
	isRoot := fixed == off+1
	if !additional || !isRoot || q.opt != nil {
		return 0, errForm // RFC 6891 §6.1.1, §6.1.2
	}
	q.opt = readOPT(msg[fixed:rdata])
	if q.opt.version == 0 && !q.opt.readOptions(msg[rdata:end]) {
		return 0, errForm
	}
	return end, nil
}

// readTSIG reads the TSIG record at off, which ends where the octets end.
func (q *query) readTSIG(msg []byte, off int, additional bool) error {
	rr, end, err := dns.UnpackRR(msg, off)
	tsig, ok := rr.(*dns.TSIG)
	if err != nil || end != len(msg) || !ok || !additional || tsig.Hdr.Class != dns.ClassANY || tsig.Algorithm == "" {
		return errForm // RFC 8945 §4.2, §5.1; the library takes no RDATA at all for an empty one
	}
	q.tsig = tsig
	return nil
}

// refusedTSIG returns the TSIG record of a reply to a signature by a key that is not known: it is not signed itself
// (RFC 8945 §5.2.1, §5.3.2). It returns nil if the query was not signed.
func (q *query) refusedTSIG() *dns.TSIG {
	if q.tsig == nil || q.rcode != dns.RcodeNotAuth {
		return nil
	}
	return &dns.TSIG{
		Hdr:       dns.RR_Header{Name: q.tsig.Hdr.Name, Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm: q.tsig.Algorithm, TimeSigned: q.tsig.TimeSigned, Fudge: q.tsig.Fudge,
		OrigId: q.id, Error: dns.RcodeBadKey,
	}
}
