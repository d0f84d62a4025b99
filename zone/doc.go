// Package zone turns peers into records and publishes them as immutable views.
//
//	Change ─► Store.Apply ─► View ─► Lookup ─► Result
//	  (any goroutine,        (one      (any number of
//	   one at a time)         pointer)  goroutines, no lock)
//
// It knows neither Kubernetes nor sockets nor messages: package watcher makes peers of objects, package resolver makes
// replies of results. It starts no goroutine and reads no clock.
//
// The lower half (view.go, edit.go, shards.go) knows names and RRsets; the upper half (records.go, ptr.go) knows what
// records a service and an address have, as pure functions; store.go and transaction.go tie both together.
//
// The reverse names of given ranges are in zones of their own, cut at labels (reverse.go): there are no delegations
// without classes (RFC 2317). Without ranges, the reverse name of a peer's address is a zone of one name.
//
//	RFC 1034 §4.3.2      all, but for delegations and wildcards: there are none
//	RFC 1035 §3.5        in-addr.arpa
//	RFC 1982 §3.1        serials
//	RFC 2181 §5          RRsets: one TTL, no duplicates
//	RFC 2308 §2, §3      NODATA, NXDOMAIN and the SOA that goes with them
//	RFC 2782             SRV
//	RFC 3596 §2.5        ip6.arpa
//	RFC 4034 §6          canonical names and order
//	RFC 8020             NXDOMAIN: nor is there anything below
//	RFC 8482 §4.1        ANY
package zone
