package resolver

import (
	// Not by its own name, which is that of the transport here.
	cryptotls "crypto/tls"
	"time"
)

// tlsConfig returns how TLS is spoken with a certificate (RFC 7858, RFC 8310 §8). Versions before 1.2 are not; the
// rest is as crypto/tls has it.
//
// Every certificate has a config of its own, and with it its own keys for session tickets, which crypto/tls makes and
// replaces daily. A client that resumes a session sees no certificate: it trusts that it has seen one before. So a
// ticket is worth nothing once the certificate has been replaced, perhaps because its key was lost or a name was taken
// from it: then there is a full handshake, which shows the new one. Replicas do not share tickets either.
func tlsConfig(pair cryptotls.Certificate) *cryptotls.Config {
	return &cryptotls.Config{
		Certificates: []cryptotls.Certificate{pair},
		MinVersion:   cryptotls.VersionTLS12,
		// A client that names no protocol is welcome; one that names others only is not (RFC 7301 §3.2).
		NextProtos: []string{"dot"},
	}
}

// handshake makes a TLS connection ready. Of a TCP connection there is nothing to do. Reading would do it too, but
// with the deadline of another step.
func (c *streamConn) handshake() error {
	conn, ok := c.Conn.(*cryptotls.Conn)
	if !ok {
		return nil
	}
	deadline := time.Now().Add(handshakeTimeout)
	c.SetWriteDeadline(deadline)
	c.readUntil(deadline)
	return conn.Handshake()
}
