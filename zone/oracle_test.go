package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The oracle answers from a flat list of records as text, by searching all of it (RFC 1034 §4.3.2 without
// delegations and wildcards). It makes the records of README's table with string handling of its own and shares no
// code with what it tests.
type oracle struct {
	apex    string
	zones   []string                       // apexes, this one and the reverse ones
	records map[string]map[string][]string // owner → type → RDATA as text
}

func (o *oracle) add(owner, rrtype, data string) {
	if o.records[owner] == nil {
		o.records[owner] = map[string][]string{}
	}
	if !slices.Contains(o.records[owner][rrtype], data) {
		o.records[owner][rrtype] = append(o.records[owner][rrtype], data)
	}
}

// newOracle makes the zone of peers, and the given reverse zones or, if there are none, those of single addresses.
func newOracle(apex string, reverse []string, peers []Peer) *oracle {
	o := &oracle{
		apex: apex, zones: append([]string{apex}, reverse...),
		records: map[string]map[string][]string{},
	}
	for _, zone := range reverse {
		o.add(zone, "NS", "ns.dns."+apex)
	}
	o.addReverse(len(reverse) == 0, peers)
	o.add(apex, "NS", "ns.dns."+apex)
	o.add("ns.dns."+apex, "A", "192.0.2.253")
	o.add("dns-version."+apex, "TXT", `"1.1.0"`)
	for _, p := range peers {
		for _, addr := range p.Addrs {
			o.add(hyphens(addr)+"."+p.Namespace+".pod."+apex, typeOf(addr), addr.String())
			if p.Service != "" {
				o.add(p.Service+"."+p.Namespace+".svc."+apex, typeOf(addr), addr.String())
				o.add(hostOf(p, addr)+"."+p.Service+"."+p.Namespace+".svc."+apex, typeOf(addr), addr.String())
			}
		}
	}
	pods, named := map[string][]string{}, map[string]bool{}
	for _, p := range peers {
		if p.Service == "" {
			continue
		}
		service := p.Service + "." + p.Namespace + ".svc." + apex
		for _, addr := range p.Addrs {
			host := hostOf(p, addr) + "." + service
			target := host
			if t := p.Target.String(); p.Target != "" && (!strings.HasSuffix(t, "."+apex) || o.hasAddress(t)) {
				target = t
			}
			for _, port := range p.Ports {
				srv := fmt.Sprintf("%d %s", port.Number, target)
				o.add(service, "SRV", srv)
				o.add(host, "SRV", srv)
				if port.Name != "" {
					o.add(fmt.Sprintf("_%s._%s.%s", port.Name, port.Protocol, service), "SRV", srv)
				}
			}
			if p.NodeName == "" && p.Pod != "" {
				key := service + " " + p.Pod
				pods[key] = append(pods[key], addr.String())
			}
		}
		if p.NodeName != "" {
			name := p.NodeName
			if t := p.Target.String(); p.Target != "" && strings.HasSuffix(t, "."+apex) && !o.hasAddress(t) {
				name = strings.Split(name, "@")[0] + "@" + p.Addrs[0].String()
			}
			o.add("_nodes."+service, "TXT", fmt.Sprintf("%q", name))
			named[service+" "+p.Pod] = true
		}
	}
	for key, addrs := range pods {
		if named[key] {
			continue
		}
		service, pod, _ := strings.Cut(key, " ")
		least := slices.MinFunc(addrs, func(a, b string) int {
			return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b))
		})
		o.add("_nodes."+service, "TXT", fmt.Sprintf("%q", pod+"@"+least))
	}
	for _, types := range o.records {
		srvs := types["SRV"]
		for i, srv := range srvs {
			srvs[i] = fmt.Sprintf("0 %d %s", max(1, 100/len(srvs)), srv)
		}
	}
	return o
}

func (o *oracle) addReverse(each bool, peers []Peer) {
	names := map[netip.Addr][]string{} // by address, each after its rank
	for _, p := range peers {
		for _, addr := range p.Addrs {
			names[addr] = append(names[addr], "3 "+hyphens(addr)+"."+p.Namespace+".pod."+o.apex)
			switch {
			case p.Service != "" && p.Hostname != "":
				names[addr] = append(names[addr], "1 "+p.Hostname+"."+p.Service+"."+p.Namespace+".svc."+o.apex)
			case p.Service != "":
				names[addr] = append(names[addr], "2 "+hyphens(addr)+"."+p.Service+"."+p.Namespace+".svc."+o.apex)
			}
		}
	}
	for addr, names := range names {
		owner := reverseText(addr)
		if each {
			o.zones = append(o.zones, owner)
			o.add(owner, "NS", "ns.dns."+o.apex)
		}
		if zone := o.zoneOf(owner); zone == "" {
			continue
		}
		best := slices.MinFunc(names, func(a, b string) int {
			return slices.Compare(fromTheRight(a), fromTheRight(b))
		})
		o.add(owner, "PTR", best[2:])
	}
}

// fromTheRight returns the rank and then the labels of a name, the last first.
func fromTheRight(ranked string) []string {
	rank, name, _ := strings.Cut(ranked, " ")
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return append([]string{rank}, labels...)
}

func reverseText(addr netip.Addr) string {
	digits, tree := strings.Split(addr.StringExpanded(), "."), "in-addr.arpa."
	if addr.Is6() {
		digits, tree = strings.Split(strings.ReplaceAll(addr.StringExpanded(), ":", ""), ""), "ip6.arpa."
	}
	slices.Reverse(digits)
	return strings.Join(digits, ".") + "." + tree
}

// zoneOf returns the longest apex that the name ends with.
func (o *oracle) zoneOf(name string) string {
	longest := ""
	for _, zone := range o.zones {
		if (name == zone || strings.HasSuffix(name, "."+zone)) && len(zone) > len(longest) {
			longest = zone
		}
	}
	return longest
}

func (o *oracle) hasAddress(name string) bool {
	return len(o.records[name]["A"])+len(o.records[name]["AAAA"]) > 0
}

func typeOf(addr netip.Addr) string {
	if addr.Is4() {
		return "A"
	}
	return "AAAA"
}

func hyphens(addr netip.Addr) string {
	text := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
	if strings.HasPrefix(text, "-") {
		text = "0" + text
	}
	if strings.HasSuffix(text, "-") {
		text += "0"
	}
	return text
}

func hostOf(p Peer, addr netip.Addr) string {
	if p.Hostname != "" {
		return p.Hostname
	}
	return hyphens(addr)
}

// lookup returns the outcome and the records, sorted as text.
func (o *oracle) lookup(name, rrtype string, exists bool) (Outcome, []string) {
	zone := o.zoneOf(name)
	switch data := o.records[name][rrtype]; {
	case zone == "":
		return OutOfZone, nil
	case rrtype == "SOA" && name == zone:
		return Success, []string{o.soa()}
	case len(data) > 0:
		return Success, slices.Sorted(slices.Values(data))
	case exists:
		return NoData, nil
	}
	return NXDomain, nil
}

func (o *oracle) soa() string { return "ns.dns." + o.apex + " hostmaster." + o.apex }

// exists tells whether there are records at the name or below it.
func (o *oracle) exists(name string) bool {
	for owner := range o.records {
		if owner == name || strings.HasSuffix(owner, "."+name) {
			return true
		}
	}
	return false
}

// names returns every owner name and the reverse name of every address there can be, the names one label above, below
// and beside each, and all above a reverse name.
func (o *oracle) names() []string {
	seen := map[string]bool{"test.": true, "other.": true, ".": true, "1.2.0.192.in-addr.test.": true}
	around := func(owner string) {
		_, parent, _ := strings.Cut(owner, ".")
		for _, name := range []string{owner, parent, "below." + owner, "_tcp." + owner, "beside." + parent, "svc." + parent} {
			if name != "" {
				seen[name] = true
			}
		}
	}
	for owner := range o.records {
		around(owner)
	}
	for _, addr := range allAddrs() {
		for name := reverseText(addr); name != ""; _, name, _ = strings.Cut(name, ".") {
			seen[name] = true
			seen["f."+name] = true
		}
		around(reverseText(addr))
		seen["0.0."+reverseText(addr)] = true
		seen["0"+reverseText(addr)] = true
	}
	return slices.Sorted(func(yield func(string) bool) {
		for name := range seen {
			if !yield(name) {
				return
			}
		}
	})
}
