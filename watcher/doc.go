// Package watcher turns the objects of Kubernetes into peers and keeps a zone up to date with them.
//
//	API ──── reflector ─┐                                       ┌─ peers
//	                    ├─► Rules: object ─► zone.Change ─► gather ─► Applier
//	files ── manifests ─┘   (pure functions)                    └─ exclusions, each with its reason
//
// Membership changes on evidence only: a complete list, or an event of a watch. No error of a source, of whatever kind,
// takes a peer away. The package knows no DNS message and no socket of ours.
//
// Where each rule comes from:
//
//	discovery.k8s.io/v1 EndpointConditions   ready: nil means true; terminating wins over ready
//	discovery.k8s.io/v1 EndpointSlice        addressType, ports: no name, no number, protocol TCP unless said
//	RFC 1123 §2.1                            which host names and labels are legal
package watcher
