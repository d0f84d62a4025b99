// Package resolver turns a question into an answer, and has the sockets on which questions come: UDP, TCP and TLS.
//
//	octets ─► parseQuery ─► answerTo ─► pack ─► octets
//	             │             │          │
//	          question,     one View:   records of miekg/dns, compressed,
//	          OPT, faults   outcome     cut to the size of the transport
//
// That row is the message path (message.go): a function of a view, a query and its occasion, without a socket, a clock
// or a lock. The transports (udp.go, stream.go) call it and wait for the first sync where it says so (wait.go);
// server.go opens, runs and closes them. Strangers are told so (allow.go); class CHAOS needs no zone (chaos.go). EDNS and
// its options are in edns.go, the hash of cookies in cookie.go. What clients can make us hold is
// bounded (bounds.go, streams.go). TLS is a stream like TCP with a handshake first (tls.go), and with the certificate
// that stands in the files now (certificate.go).
//
// It does not resolve: it never asks another server. It knows neither Kubernetes nor peers: package zone says what
// stands at a name. It keeps no state between questions.
//
//	RFC 1034 §4.3.2, 1035 §4  all, for opcode QUERY and class IN
//	RFC 2181 §9               all: TC for what had to be there, additional RRsets whole or not at all
//	RFC 2308 §3               all: the SOA of negative answers
//	RFC 2782                  all: targets uncompressed, their addresses in the additional section
//	RFC 3225 §3               DO is copied; there is no DNSSEC
//	RFC 3597 §4               all: no compression in the RDATA of newer types
//	RFC 4343                  all: the question's case comes back
//	RFC 4892                  all: id.server and its kin
//	RFC 5001                  all: NSID
//	RFC 5936, 1995            not: AXFR and IXFR are REFUSED
//	RFC 6891                  all
//	RFC 7766, 9210            all, but for replies out of order: only those that wait for the first sync are
//	RFC 7828                  all: TCP keepalive
//	RFC 7858 §3, 8310 §8      all that a server has to do; raw public keys and early data are not
//	RFC 7830, 8467            all: padding over TLS
//	RFC 7873, 9018            all, but cookies are never demanded
//	RFC 8482 §4.1             all: ANY gets one RRset
//	RFC 8906                  all: whatever is a query is told something
//	RFC 8914                  in part: codes 0 (who is left out at a name), 3, 14, 18, 19 and 20
//	RFC 8945                  in part: there are no keys, and who signs is told BADKEY
//	RFC 9619                  all: one question, no more and no less
package resolver
