package celltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Lossy returns a Dial, as DialFrom does, for a client whose replies may get
// lost: the replica has done what was asked, and the client sees that there was
// no answer. It imitates a connection, or a master, that fails between the
// request and the reply. An application may notice a call that takes longer:
// the client asks again and gets the answer to what was done once.
//
// lose is called for each reply, concurrently, with the full method, such as
// /chubby.v1.Chubby/SetContents. If it returns true, the reply is lost.
func (c *Cell) Lossy(host string, lose func(method string) bool) func(context.Context, string) (net.Conn, error) {
	dial := c.DialFrom(host)
	var mu sync.Mutex // guards proxies
	proxies := map[string]*listener{}
	return func(ctx context.Context, address string) (net.Conn, error) {
		mu.Lock()
		l := proxies[address]
		if l == nil {
			l = c.proxy(dial, address, lose)
			proxies[address] = l
		}
		mu.Unlock()
		conn, err := l.dial(ctx, host)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// proxy serves every method by forwarding the bytes to one replica.
func (c *Cell) proxy(dial func(context.Context, string) (net.Conn, error), address string, lose func(string) bool) *listener {
	behind, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}})) // as the client library does it
	if err != nil {
		c.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(in)
		return forward(in, behind, method, func() bool { return lose(method) })
	}), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})) // as a replica does it
	l := newListener(address)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // returns after Stop
	c.t.Cleanup(func() {
		server.Stop()
		_ = behind.Close()
		serving.Wait()
	})
	return l
}

// forward forwards one request, and those of its replies that are not lost.
func forward(in grpc.ServerStream, behind *grpc.ClientConn, method string, lose func() bool) error {
	var request []byte
	if err := in.RecvMsg(&request); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	out, err := behind.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(out.SendMsg(&request), out.CloseSend()); err != nil {
		return err
	}
	for {
		var reply []byte
		err := out.RecvMsg(&reply)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if lose() {
			return status.Error(codes.Unavailable, "the reply was lost")
		}
		if err != nil {
			return err
		}
		if err := in.SendMsg(&reply); err != nil {
			return err
		}
	}
}

// rawCodec leaves messages as bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("marshal %T: want bytes", v)
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal into %T: want bytes", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}
