package zone

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// schema makes records of peers: the only place that knows owner names, weights and TTLs. It is a value and its
// methods are pure functions.
type schema struct {
	authority
	apex  Name
	inner []Name // apexes below this one: names there are not in this zone
}

// authority is what the SOA and NS records of a zone say. The reverse zones have that of the first zone.
type authority struct {
	nameServer, mailbox Name
	ttl, negativeTTL    uint32 // seconds
}

// recordSet is RRsets by owner name, each name's sorted by type.
type recordSet map[Name][]RRset

// dnsVersion is the version of the Kubernetes DNS specification that the zone follows, and versionTTL its TTL there.
const (
	dnsVersion = "1.1.0"
	versionTTL = 28800
)

// fixed returns what the zone holds without any peer, but for the SOA.
func (s schema) fixed(nameServer []netip.Addr) recordSet {
	set := recordSet{
		s.apex:                           {s.ns()},
		mustChild(s.apex, "dns-version"): {newRRset(dns.TypeTXT, versionTTL, textData(dnsVersion))},
		// Without an address the name is there all the same, so that nobody is told that it does not exist.
		s.nameServer: {},
	}
	if len(nameServer) > 0 {
		var host draft
		host.addAddrs(nameServer)
		set[s.nameServer] = host.rrsets(s.ttl)
	}
	return set
}

// ofService returns the records of all peers of one service, other than their pods' names. An SRV target of a peer's own
// that is in the zone counts only if it resolves there.
func (s schema) ofService(namespace, service string, peers []Peer, resolves func(Name) bool) recordSet {
	owner, err := s.serviceName(namespace, service)
	if err != nil {
		return nil
	}
	drafts := map[Name]*draft{}
	at := func(name Name) *draft {
		d := drafts[name]
		if d == nil {
			d = new(draft)
			drafts[name] = d
		}
		return d
	}
	all := at(owner)
	for i := range peers {
		peer := &peers[i]
		for label, addrs := range peer.endpoints() {
			hostname, err := owner.Child(label)
			if err != nil {
				continue // admit has seen to it that there is none
			}
			target := hostname
			if peer.Target != "" && (!peer.Target.In(s.apex) || resolves(peer.Target)) {
				target = peer.Target
			}
			host := at(hostname)
			host.addAddrs(addrs)
			all.addAddrs(addrs)
			for _, port := range peer.Ports {
				e := srvEndpoint{port.Number, target}
				host.srv = append(host.srv, e)
				all.srv = append(all.srv, e)
				if name, err := portName(owner, port); err == nil {
					named := at(name)
					named.srv = append(named.srv, e)
				}
			}
		}
	}
	if name, err := owner.Child("_nodes"); err == nil {
		at(name).txt = s.nodeNames(peers, resolves)
	}
	set := make(recordSet, len(drafts))
	for name, d := range drafts {
		if rrsets := d.rrsets(s.ttl); len(rrsets) > 0 {
			set[name] = rrsets
		}
	}
	return set
}

// nodeNames returns the RDATA of _nodes: one string for each peer whose pod is known. A pod that several objects speak
// of, as the slices of two families do, is one peer; a node name of its own comes before the one that we make. A host in
// the zone that does not resolve there gives way to the first address, as it does in SRV records. A name that fits into
// no string is left out.
func (s schema) nodeNames(peers []Peer, resolves func(Name) bool) []string {
	var names []string
	named := map[string]bool{}       // pods with a node name of their own
	first := map[string]netip.Addr{} // address of pods
	for i := range peers {
		p := &peers[i]
		for _, addr := range p.Addrs {
			if least, ok := first[p.Pod]; !ok || addr.Less(least) {
				first[p.Pod] = addr
			}
		}
		if p.NodeName == "" {
			continue
		}
		named[p.Pod] = true
		name := p.NodeName
		if p.Target != "" && p.Target.In(s.apex) && !resolves(p.Target) && len(p.Addrs) > 0 {
			base, _, _ := strings.Cut(name, "@")
			name = base + "@" + p.Addrs[0].String()
		}
		names = append(names, name)
	}
	for pod, addr := range first {
		if pod != "" && !named[pod] {
			names = append(names, pod+"@"+addr.String())
		}
	}
	texts := names[:0]
	for _, name := range names {
		if len(name) <= maxText {
			texts = append(texts, textData(name))
		}
	}
	return texts
}

// ofAddress returns the records of one address of one namespace: the pod's name.
func (s schema) ofAddress(namespace string, addr netip.Addr) recordSet {
	owner, err := s.podName(namespace, addr)
	if err != nil {
		return nil
	}
	rrtype, data := addressData(addr)
	return recordSet{owner: {newRRset(rrtype, s.ttl, data)}}
}

func (s schema) serviceName(namespace, service string) (Name, error) {
	return s.apex.descend("svc", namespace, service)
}

func (s schema) podName(namespace string, addr netip.Addr) (Name, error) {
	return s.apex.descend("pod", namespace, AddressLabel(addr))
}

// portName returns the owner name of a named port's SRV records (RFC 2782). A port name of 63 octets has none, since
// the underscore makes the label too long.
func portName(service Name, port Port) (Name, error) {
	if port.Name == "" {
		return "", ErrName
	}
	return service.descend("_"+port.Protocol, "_"+port.Name)
}

// endpoints iterates over the endpoint labels of the peer, each with its addresses.
func (p *Peer) endpoints() func(yield func(string, []netip.Addr) bool) {
	return func(yield func(string, []netip.Addr) bool) {
		if len(p.Addrs) == 0 {
			return
		}
		if p.Hostname != "" {
			yield(p.Hostname, p.Addrs)
			return
		}
		for i, addr := range p.Addrs {
			if !yield(AddressLabel(addr), p.Addrs[i:i+1]) {
				return
			}
		}
	}
}

// draft gathers the records of one name.
type draft struct {
	a, aaaa, txt []string // RDATA
	srv          []srvEndpoint
}

type srvEndpoint struct {
	port   uint16
	target Name
}

func (e srvEndpoint) compare(f srvEndpoint) int {
	return cmp.Or(cmp.Compare(e.port, f.port), cmp.Compare(e.target, f.target))
}

func (d *draft) addAddrs(addrs []netip.Addr) {
	for _, addr := range addrs {
		if rrtype, data := addressData(addr); rrtype == dns.TypeA {
			d.a = append(d.a, data)
		} else {
			d.aaaa = append(d.aaaa, data)
		}
	}
}

func (d *draft) rrsets(ttl uint32) []RRset {
	var sets []RRset
	if len(d.a) > 0 {
		sets = append(sets, newRRset(dns.TypeA, ttl, d.a...))
	}
	if len(d.txt) > 0 {
		sets = append(sets, newRRset(dns.TypeTXT, ttl, d.txt...))
	}
	if len(d.aaaa) > 0 {
		sets = append(sets, newRRset(dns.TypeAAAA, ttl, d.aaaa...))
	}
	if len(d.srv) > 0 {
		sets = append(sets, srvRRset(ttl, d.srv))
	}
	return sets
}

// admit checks that every name of the peer can be made. A peer whose hostname makes a name too long keeps the hyphenated
// one, a peer whose service does its pod name, and one whose namespace does nothing; all are excluded as BadName.
func (s schema) admit(peer Peer) (Peer, *Exclusion) {
	excluded := &Exclusion{Peer: peer, Reason: BadName}
	for _, addr := range peer.Addrs {
		if _, err := s.podName(peer.Namespace, addr); err != nil {
			return Peer{}, excluded
		}
	}
	if peer.Service == "" {
		return peer, nil
	}
	if s.admitsService(&peer) {
		return peer, nil
	}
	// Losing a peer is worse than losing a name: first its hostname goes, and only then the service.
	if peer.Hostname = ""; !s.admitsService(&peer) {
		peer.Service = ""
	}
	return peer, excluded
}

// admitsService tells whether the names of the peer in its service can be made.
func (s schema) admitsService(peer *Peer) bool {
	owner, err := s.serviceName(peer.Namespace, peer.Service)
	for label := range peer.endpoints() {
		if err == nil {
			_, err = owner.Child(label)
		}
	}
	return err == nil
}

func (n Name) descend(labels ...string) (Name, error) {
	var err error
	for _, label := range labels {
		if n, err = n.Child(label); err != nil {
			return "", err
		}
	}
	return n, nil
}

// mustChild is for the names of the zone itself, for which newSchema has made sure that there is room.
func mustChild(n Name, label string) Name {
	child, err := n.Child(label)
	if err != nil {
		panic(fmt.Sprintf("zone: no room for the names of the zone itself: %v", err))
	}
	return child
}

func newSchema(apex Name, ttl, negativeTTL uint32) (schema, error) {
	for _, labels := range [...][]string{{"dns", "ns"}, {"dns-version"}, {"hostmaster"}} {
		if _, err := apex.descend(labels...); err != nil {
			return schema{}, fmt.Errorf("zone %s: %w", apex, err)
		}
	}
	nameServer, mailbox := mustChild(mustChild(apex, "dns"), "ns"), mustChild(apex, "hostmaster")
	return schema{authority: authority{nameServer, mailbox, ttl, negativeTTL}, apex: apex}, nil
}

func (a authority) ns() RRset { return newRRset(dns.TypeNS, a.ttl, string(a.nameServer)) }

// soa returns the SOA RRset, and the same for the authority section of negative answers (RFC 2308 §3).
func (a authority) soa(serial uint32) (soa, negative RRset) {
	soa = soaRRset(a.nameServer, a.mailbox, serial, a.ttl, a.negativeTTL)
	negative = soa
	negative.TTL = a.negativeTTL
	return soa, negative
}

func (r recordSet) equalAt(name Name, other []RRset) bool {
	return slices.EqualFunc(r[name], other, RRset.equal)
}
