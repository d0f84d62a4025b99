package resolver

import (
	"encoding/binary"
	"slices"

	"github.com/miekg/dns"

	"peerdns/zone"
)

// pack writes the reply, at most limit octets. What must be there and does not fit is cut at a whole record and has TC;
// an additional RRset that does not fit is left out with those after it, without TC (RFC 2181 §9). This is why it is
// not dns.Msg.Truncate, which sets TC for either.
func pack(q *query, a *answer, opt *dns.OPT, limit int) []byte {
	p := newPacker(q, limit)
	if opt != nil {
		p.limit -= dns.Len(opt)
	}
	tsig := q.refusedTSIG()
	answers, whole := p.addRRset(a.answer)
	authorities := 0
	if whole {
		authorities, whole = p.addRRset(a.authority)
	}
	additionals := 0
	if whole && a.additional != nil {
		for owner, set := range a.additional {
			mark := p.off
			n, fits := p.addRRset(rrsets{owner: owner, set: set})
			if !fits {
				p.off = mark
				break
			}
			additionals += n
		}
	}
	if opt != nil {
		p.limit = limit
		pad(opt, p.off, limit)
		p.add(opt)
		additionals++
	}
	if tsig != nil && p.add(tsig) {
		additionals++
	}
	flags := flagQR | q.flags&(maskOpcode|flagRD) | uint16(a.rcode&0xF)
	if a.authoritative {
		flags |= flagAA
	}
	if !whole {
		flags |= flagTC
	}
	return p.done(q, flags, answers, authorities, additionals)
}

// packer is a message that is being written.
type packer struct {
	buf   []byte         // the message, and room behind it
	off   int            // octets written
	limit int            // octets of the message at most
	names map[string]int // where a name stands, for compression
}

// newPacker begins a message with the question as it came. Names in it count in canonical form, so that a record's
// owner name becomes a pointer to it whatever the case in which it was asked.
func newPacker(q *query, limit int) *packer {
	p := &packer{buf: make([]byte, dns.MinMsgSize), limit: limit, names: make(map[string]int)}
	p.off = headerLen + copy(p.buf[headerLen:], q.question)
	if q.question != nil {
		for name := range q.name.Up() {
			if name != zone.Root {
				p.names[name.String()] = headerLen + len(q.name) - len(name)
			}
		}
	}
	return p
}

// minRecordLen is the least that a record takes: a pointer for its owner name, and the fixed part.
const minRecordLen = 2 + recordFixedLen

// addRRset writes the records of an RRset until one does not fit; it returns how many did, and whether all did.
func (p *packer) addRRset(s rrsets) (n int, whole bool) {
	total := len(s.set.Data)
	if total == 0 {
		return 0, true
	}
	// A set of thousands is not made into records for a datagram of thirty.
	s.set.Data = around(s.set.Data, s.first, max(0, p.limit-p.off)/minRecordLen+1)
	for _, rr := range s.set.RRs(s.owner) {
		if s.class != 0 {
			rr.Header().Class = s.class
		}
		if !p.add(rr) {
			return n, false
		}
		n++
	}
	return n, n == total
}

// around returns n of the records, or all there are: from the first on, and round.
func around(data []string, first, n int) []string {
	n = min(n, len(data))
	if first+n <= len(data) {
		return data[first : first+n]
	}
	return append(slices.Clip(data[first:]), data[:first+n-len(data)]...)
}

// add writes a record if it fits. After one that did not, names must not be used again: it knows where that one stood.
func (p *packer) add(rr dns.RR) bool {
	// PackRR may panic where the buffer ends inside a name, so there is room even for an uncompressed record.
	if need := p.off + dns.Len(rr) + minRecordLen; need > len(p.buf) {
		p.buf = append(p.buf, make([]byte, need)...)
	}
	end, err := dns.PackRR(rr, p.buf, p.off, p.names, true)
	if err != nil || end > p.limit {
		return false
	}
	p.off = end
	return true
}

// done writes the header.
func (p *packer) done(q *query, flags uint16, answers, authorities, additionals int) []byte {
	questions := 0
	if q.question != nil {
		questions = 1
	}
	binary.BigEndian.PutUint16(p.buf, q.id)
	binary.BigEndian.PutUint16(p.buf[2:], flags)
	for i, count := range [...]int{questions, answers, authorities, additionals} {
		binary.BigEndian.PutUint16(p.buf[4+2*i:], uint16(count))
	}
	return p.buf[:p.off]
}
