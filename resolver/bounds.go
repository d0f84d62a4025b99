package resolver

import "time"

// The bounds of connections, TCP and TLS together (RFC 7766 §6.1, §6.2, §10; RFC 9210 §4). None of them depends on
// what a client wants, so that all clients together hold a known amount of memory, descriptors and goroutines.
const (
	// maxStreams is how many connections there are at once, those in a handshake and those that are being closed
	// included. One more is let in and the one that has been silent for longest is closed: many silent ones cannot
	// keep others out. Each holds at most a question and a reply of 64 KiB and the buffers of its socket.
	maxStreams = 1024

	// maxClientStreams is how many of them one IPv4 address or IPv6 /64 has, the smallest network that one host can
	// be given. One more closes that client's own longest silent one, so that at least four must conspire before
	// others lose theirs. It is a quarter of all because a client may be a forwarder, or a node with all its pods
	// behind it: unbound opens 10 for each thread, CoreDNS one for each question in flight, and what is closed here
	// is what its pool does not use.
	maxClientStreams = 256

	// handshakeTimeout is for all of a TLS handshake.
	handshakeTimeout = 5 * time.Second

	// idleTimeout is without a new question. Forwarders keep connections for about as long.
	idleTimeout = 10 * time.Second

	// frameTimeout is for all of a question, from its first octet, however slowly the others drip.
	frameTimeout = 5 * time.Second

	// writeTimeout is for all of a reply. A connection reads no question while its reply does not get away, so who
	// reads no replies makes us hold one, and is gone after that time.
	writeTimeout = 5 * time.Second

	// lingerTimeout and lingerOctets bound what is read and thrown away after our FIN. A socket that is closed with
	// octets unread sends RST, and RST may take replies from a client that has not read them yet (RFC 1122 §4.2.2.13).
	lingerTimeout = time.Second
	lingerOctets  = 1 << 18

	// socketBuffer is what the kernel keeps in each direction, in octets; Linux counts double for its own needs. The
	// kernel would let it grow to megabytes. It holds any reply whole, so that writing rarely waits.
	socketBuffer = 1 << 16

	// keptFrame is how many octets of buffer a connection keeps between questions.
	keptFrame = 4096
)

// udpBuffer is how many octets of datagrams the kernel keeps for each UDP socket while nobody reads: some 5,000 questions,
// so that a burst, or a flood beside honest questions, is not lost. Linux gives no more than net.core.rmem_max, which is
// often a twentieth of it.
const udpBuffer = 4 << 20

// The bounds of questions that wait for the first sync. Each costs a goroutine and its own few octets.
const (
	// syncWait is how long a question waits before it is told SERVFAIL. One SERVFAIL is enough for libcluster to let
	// go of every node, whereas 3 seconds of silence do no harm.
	syncWait = 2 * time.Second

	maxWaiting       = 1024 // over UDP, and over all connections
	maxStreamWaiting = 64   // over one connection, so that no one takes all seats
)
