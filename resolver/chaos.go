package resolver

import (
	"github.com/miekg/dns"

	"peerdns/zone"
)

// The names of class CHAOS that say who answers (RFC 4892, and BIND's older ones).
var (
	versionNames = [...]zone.Name{chaosName("version", "server"), chaosName("version", "bind")}
	idNames      = [...]zone.Name{chaosName("id", "server"), chaosName("hostname", "bind")}
)

func chaosName(host, domain string) zone.Name {
	return zone.Name([]byte{byte(len(host))}) + zone.Name(host) + zone.Name([]byte{byte(len(domain))}) + zone.Name(domain) + zone.Root
}

// chaos answers a question of class CHAOS: it needs no zone. What is not told is REFUSED, as is every other name.
func (p messagePath) chaos(q *query) answer {
	text := ""
	switch q.name {
	case versionNames[0], versionNames[1]:
		text = p.version
	case idNames[0], idNames[1]:
		text = p.serverID
	}
	if text == "" {
		return answer{rcode: dns.RcodeRefused, extended: says(notAuthoritative())}
	}
	a := answer{authoritative: true}
	if q.qtype == dns.TypeTXT || q.qtype == dns.TypeANY {
		text = text[:min(len(text), 255)]
		a.answer = rrsets{owner: q.name, class: dns.ClassCHAOS, set: zone.RRset{
			Type: dns.TypeTXT, Data: []string{string([]byte{byte(len(text))}) + text},
		}}
	}
	return a
}
