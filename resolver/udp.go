package resolver

import (
	"context"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// udpSocket is one socket of a UDP address.
type udpSocket struct {
	*net.UDPConn
	oobLen int // octets of control data with a datagram; 0 where the socket has one address only
}

// maxQuery is the size of the buffer for a datagram: no datagram is larger.
const maxQuery = 65535 // octets

func openUDP(network string, addr netip.AddrPort) (*udpSocket, error) {
	config := net.ListenConfig{Control: sharePort}
	conn, err := config.ListenPacket(context.Background(), network, hostPort(addr))
	if err != nil {
		return nil, err
	}
	s := &udpSocket{UDPConn: conn.(*net.UDPConn)}
	_ = s.SetReadBuffer(udpBuffer) // what became of it, warnOfBuffers says
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() {
		s.askDestination()
	}
	return s, nil
}

// askDestination makes the kernel say to which address a datagram came. The socket may be of either family or of both.
// Where the system cannot say it, replies leave from the address that it chooses.
func (s *udpSocket) askDestination() {
	err6 := ipv6.NewPacketConn(s.UDPConn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	err4 := ipv4.NewPacketConn(s.UDPConn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	if err6 == nil || err4 == nil {
		s.oobLen = len(ipv6.NewControlMessage(ipv6.FlagDst|ipv6.FlagInterface)) +
			len(ipv4.NewControlMessage(ipv4.FlagDst|ipv4.FlagInterface))
	}
}

// serveUDP answers what comes on a socket until the server ends. No error of reading ends it before.
func (s *Server) serveUDP(socket *udpSocket) {
	buf := make([]byte, maxQuery)
	oob := make([]byte, socket.oobLen)
	for failures := 0; ; {
		n, oobn, _, client, err := socket.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			failures++
			if !s.pause(failures) {
				return
			}
			s.log.Debug("read", "proto", "udp", "err", err)
			continue
		}
		failures = 0
		source := sourceControl(oob[:oobn])
		s.answer(buf[:n], s.occasion(client.Addr(), udp), s.udpWaiting, &s.work, func(reply []byte) {
			if _, _, err := socket.WriteMsgUDPAddrPort(reply, source, client); err != nil {
				s.log.Debug("write", "proto", "udp", "client", client, "err", err)
			}
		})
	}
}

// sourceControl turns the control data of a datagram into that of its reply, which leaves from the address that was
// asked: a client takes no reply from another one. It returns nil if the data does not say.
func sourceControl(oob []byte) []byte {
	if len(oob) == 0 {
		return nil
	}
	var m6 ipv6.ControlMessage
	if m6.Parse(oob) == nil && m6.Dst != nil && m6.Dst.To4() == nil {
		reply := ipv6.ControlMessage{Src: m6.Dst}
		if m6.Dst.IsLinkLocalUnicast() {
			reply.IfIndex = m6.IfIndex // without it the address says nothing; with others it would overrule the routes
		}
		return reply.Marshal()
	}
	var m4 ipv4.ControlMessage
	if m4.Parse(oob) == nil && m4.Dst != nil {
		return (&ipv4.ControlMessage{Src: m4.Dst}).Marshal()
	}
	return nil
}
