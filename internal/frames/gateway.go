package frames

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Gateway makes a grpc.Server without services the gateway of this one on their port. If a connection's first
// bytes show that it speaks frames, it is served here; gRPC gets the others, limits the time
// (grpc.ConnectionTimeout), and hands their calls to this server. The listener may encrypt them.
//
// A connection with a method Peek, like bufio.Reader's, is not read before its protocol is known.
func (s *Server) Gateway() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(s.Credentials()), grpc.UnknownServiceHandler(s.foreign)}
}

// Credentials is Gateway for a grpc.Server with services of its own.
func (s *Server) Credentials() credentials.TransportCredentials {
	return sniffer{TransportCredentials: insecure.NewCredentials(), server: s}
}

// foreignCall is a call over gRPC.
type foreignCall struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // of the call
	rest    func() (any, error)
	resumed chan struct{}
}

func (k *foreignCall) Context() context.Context { return k.ctx }

// park keeps the goroutine, which gRPC needs.
func (k *foreignCall) park(_ bool, rest func() (any, error)) (resume func()) {
	resumed := make(chan struct{})
	k.rest, k.resumed = rest, resumed
	return sync.OnceFunc(func() { close(resumed) })
}

func (s *Server) foreign(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	m := s.methods[name]
	if m == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %q", name)
	}
	k := &foreignCall{ServerStream: stream}
	k.ctx = context.WithValue(stream.Context(), callKey{}, k)
	reply, err := s.handle(m, k)
	for errors.Is(err, ErrParked) {
		select {
		case <-k.resumed:
		case <-k.ctx.Done():
		}
		reply, err = k.rest()
	}
	if reply == nil || err != nil {
		return err
	}
	return stream.SendMsg(reply)
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
	s.server.Take(peek)
	return nil, nil, credentials.ErrConnDispatched
}

func (s sniffer) Clone() credentials.TransportCredentials { return s }

type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b *buffered) Peek(n int) ([]byte, error) { return b.reader.Peek(n) }

func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }
