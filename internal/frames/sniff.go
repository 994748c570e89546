package frames

import (
	"bufio"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials let a grpc.Server share its port with this one. If a connection's first bytes show that it speaks
// frames, it is served here; gRPC gets the others, and limits the time (grpc.ConnectionTimeout). The listener
// may encrypt them.
//
// A connection with a method Peek, like bufio.Reader's, is not read before its protocol is known.
func (s *Server) Credentials() credentials.TransportCredentials {
	return sniffer{TransportCredentials: insecure.NewCredentials(), server: s}
}

type sniffer struct {
	credentials.TransportCredentials
	server *Server
}

// peeker is a connection whose next bytes can be seen before a read.
type peeker interface {
	net.Conn
	Peek(n int) ([]byte, error)
}

func (s sniffer) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	peek, ok := conn.(peeker)
	if !ok {
		peek = &buffered{Conn: conn, reader: bufio.NewReaderSize(conn, readBuffer)}
	}
	first, err := peek.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	if first[0] != FirstByte {
		return s.TransportCredentials.ServerHandshake(peek)
	}
	if _, err := peek.Peek(HelloSize); err != nil { // whose time is limited here
		return nil, nil, err
	}
	s.server.Go(peek)
	return nil, nil, credentials.ErrConnDispatched
}

func (s sniffer) Clone() credentials.TransportCredentials { return s }

type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b *buffered) Peek(n int) ([]byte, error) { return b.reader.Peek(n) }

func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }
