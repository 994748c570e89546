package frames

import (
	"bufio"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials let a grpc.Server have one port with this one: its first bytes tell a
// connection of frames, which is taken away from gRPC and served here. gRPC bounds the time
// for that (grpc.ConnectionTimeout), and has all other connections to itself. Encryption is not its
// business: the connections of the listener may be encrypted.
//
// A connection with a method Peek, as bufio.Reader has it, is not read before it is known
// whose it is.
func (s *Server) Credentials() credentials.TransportCredentials {
	return sniffer{TransportCredentials: insecure.NewCredentials(), server: s}
}

type sniffer struct {
	credentials.TransportCredentials
	server *Server
}

// peeker is a connection whose next bytes can be seen before they are read.
type peeker interface {
	net.Conn
	Peek(n int) ([]byte, error)
}

// ServerHandshake implements credentials.TransportCredentials.
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
	if _, err := peek.Peek(HelloSize); err != nil { // whose time is bounded here
		return nil, nil, err
	}
	s.server.Go(peek)
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (s sniffer) Clone() credentials.TransportCredentials { return s }

// buffered is a connection with a buffer.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

// Peek implements peeker.
func (b *buffered) Peek(n int) ([]byte, error) { return b.reader.Peek(n) }

// Read implements net.Conn.
func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }
