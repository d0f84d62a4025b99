package zone

import (
	"fmt"
	"slices"
)

// Exclusions are indexed by the names that would exist but for them, without the apex: all zones have the same. Reverse
// names are there whole, and behind an octet that begins no other name.
type exclusionIndex = shards[Name, []*Exclusion]

// String says what is excluded and why, as "pod shop/web-0 excluded: terminating".
func (e Exclusion) String() string {
	subject := "pod " + e.Namespace + "/" + e.Pod
	if e.Pod == "" {
		subject = "endpoint of " + e.Namespace + "/" + e.Service
		if len(e.Addrs) > 0 {
			subject += " at " + e.Addrs[0].String()
		}
	}
	return fmt.Sprintf("%s excluded: %s", subject, e.Reason)
}

// SameText tells whether both have the same String. A pod that slices of two families speak of is excluded by each.
func (e *Exclusion) SameText(f *Exclusion) bool {
	if e.Namespace != f.Namespace || e.Pod != f.Pod || e.Reason != f.Reason {
		return false
	}
	return e.Pod != "" || e.Service == f.Service && slices.Equal(e.Addrs[:min(1, len(e.Addrs))], f.Addrs[:min(1, len(f.Addrs))])
}

// names returns the names that the peer would have, without the apex.
func (e *Exclusion) names() []Name {
	var names []Name
	add := func(parent Name, labels ...string) Name {
		name, err := parent.descend(labels...)
		if err == nil {
			names = append(names, name)
		}
		return name
	}
	if e.Reason != NoService && e.Reason != BadName { // those keep the pod's name
		for _, addr := range e.Addrs {
			add(Root, "pod", e.Namespace, AddressLabel(addr))
			names = append(names, reverseKey(reverseName(addr)))
		}
	}
	if e.Service == "" {
		return names
	}
	service := add(Root, "svc", e.Namespace, e.Service)
	if service == "" {
		return names
	}
	add(service, "_nodes")
	if e.Hostname != "" {
		add(service, e.Hostname)
	} else {
		for _, addr := range e.Addrs {
			add(service, AddressLabel(addr))
		}
	}
	for _, port := range e.Ports {
		if port.Name != "" {
			add(service, "_"+port.Protocol)
			add(service, "_"+port.Protocol, "_"+port.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func reverseKey(name Name) Name { return Root + name }

// index puts the exclusions into the index, each name's in canonical order; unindex takes them out.
func index(e *shardsEditor[Name, []*Exclusion], excluded []Exclusion) {
	for i := range excluded {
		for _, name := range excluded[i].names() {
			at, _ := e.get(name)
			j, _ := slices.BinarySearchFunc(at, &excluded[i], comparePointers)
			// A copy: views before this one have the list too.
			e.set(name, slices.Insert(slices.Clip(slices.Clone(at)), j, &excluded[i]))
		}
	}
}

func unindex(e *shardsEditor[Name, []*Exclusion], excluded []Exclusion) {
	for i := range excluded {
		for _, name := range excluded[i].names() {
			at, _ := e.get(name)
			rest := make([]*Exclusion, 0, len(at))
			for _, other := range at {
				if other != &excluded[i] {
					rest = append(rest, other)
				}
			}
			if len(rest) == 0 {
				e.delete(name)
			} else {
				e.set(name, rest)
			}
		}
	}
}

func comparePointers(a, b *Exclusion) int { return a.compare(*b) }

// ExcludedAt returns what would make the name exist but is left out, in canonical order. The list is the view's own.
func (v *View) ExcludedAt(name Name) []*Exclusion {
	i, ok := v.apexes.find(name)
	if !ok {
		return nil
	}
	key := reverseKey(name)
	if z := v.zones[i]; i < v.apexes.forward {
		if len(name) == len(z.apex) {
			return nil
		}
		if canonical, ok := z.canonicalPodName(name); ok {
			name = canonical
		}
		key = name[:len(name)-len(z.apex)] + Root
	}
	at, _ := v.excludedAt.get(key)
	return at
}

// ExcludedByReason counts what is known but left out.
func (v *View) ExcludedByReason() map[Reason]int {
	counts := map[Reason]int{}
	for _, o := range v.objects.all() {
		for i := range o.excluded {
			counts[o.excluded[i].Reason]++
		}
	}
	return counts
}
