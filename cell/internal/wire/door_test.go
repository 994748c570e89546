package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// decodes is what transports do with a request that has arrived.
func decodes(m any, wire []byte) error {
	return m.(interface{ Decode(message []byte) error }).Decode(wire)
}

// called is the context of a call over a connection; its headers have arrived.
func called(t *testing.T, conn *heardConn) context.Context {
	t.Helper()
	conn.account.mu.Lock()
	conn.account.arrived(frame{kind: frameHeaders, stream: conn.account.last + 2})
	conn.account.mu.Unlock()
	return withCall(peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr()}))
}

// arrivedStream has a request that has arrived.
type arrivedStream struct {
	grpc.ServerStream
	ctx  context.Context
	wire []byte
	read *bool // whether it was asked for
}

func (h arrivedStream) Context() context.Context { return h.ctx }

func (h arrivedStream) RecvMsg(m any) error {
	if h.read != nil {
		*h.read = true
	}
	return decodes(m, h.wire)
}

// throughDoor makes a call whose request has arrived, and which next serves. read says whether its request was asked for.
func throughDoor(ctx context.Context, s *service, method string, request proto.Message, next grpc.UnaryHandler) (reply any, read bool, err error) {
	generated := func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := request.ProtoReflect().New().Interface()
		if err := decode(in); err != nil {
			return nil, err
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{FullMethod: method}, next)
	}
	stream := arrivedStream{ctx: ctx, read: &read}
	if stream.wire, err = proto.Marshal(request); err != nil {
		return nil, false, err
	}
	reply, err = s.serve(&frames.Method{Name: method, Unary: generated}, stream)
	return reply, read, err
}

// The request of a refused caller is not decoded; a served one has what was sent.
func TestNothingIsDecodedForStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		why    error
	}{
		"a client":   {pb.Chubby_Txn_FullMethodName, nil},
		"a stranger": {pb.Chubby_Txn_FullMethodName, errors.New("it was revoked")},
		"a stranger who shows a token where none count": {pb.Cell_Authenticate_FullMethodName, errors.New("it was revoked")},
	} {
		_, conn, _ := connected(t, func() (string, func() bool, error) { return "alice", func() bool { return true }, c.why })
		conn.identify(make([]*x509.Certificate, 1))
		s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{asked: 1}})
		served := ""
		_, decoded, err := throughDoor(called(t, conn), s, c.method, &pb.AuthenticateRequest{Token: "a token"}, func(_ context.Context, q any) (any, error) {
			served = q.(*pb.AuthenticateRequest).GetToken()
			return &pb.AuthenticateReply{}, nil
		})
		if refused := c.why != nil; refused != errors.Is(pb.Error(err), api.Unauthenticated) || decoded == refused || (served == "a token") == refused {
			t.Errorf("%s: %v; decoded: %v, and served: %q", name, err, decoded, served)
		}
	}
}

// A call that is refused because of its rate, or for want of room, is not decoded.
func TestNothingIsDecodedForFloods(t *testing.T) {
	c, _ := rated(Rates{Calls: 1})
	conn := arriving(t, c, "10.0.0.1:1", "alice", 1)
	s := newService(Config{Logger: slog.New(slog.DiscardHandler), Replica: &turning{asked: 1}})
	for n := range 2 {
		ctx := called(t, conn)
		_, _, err := throughDoor(ctx, s, pb.Chubby_Backup_FullMethodName, &pb.BackupRequest{Part: 7}, func(context.Context, any) (any, error) { return &pb.BackupReply{}, nil })
		decoded := callOf(ctx).unread.(*pb.BackupRequest)
		if late := n > 0; late != errors.Is(pb.Error(err), api.Unavailable) || (decoded.GetPart() == 7) == late {
			t.Errorf("call %d: %v; decoded: %v", n+1, err, decoded)
		}
	}
}

// Memory that a request takes beyond its bytes is counted until its call has ended.
func TestPartsAreHeld(t *testing.T) {
	c := newHeld(heldLimits{conn: 1 << 20, address: 1 << 30, all: 1 << 30})
	conn, _ := hoarding(t, c, "10.0.0.1:1", 0)
	before, one := c.Held(), conn.account.newest
	if err := one.admit(requestSize{bytes: 2 * someParts, parts: someParts}); err != nil || c.Held() != before {
		t.Errorf("%d bytes more are held for some parts, %v", c.Held()-before, err)
	}
	if err := one.admit(requestSize{parts: someParts + 100}); err != nil || c.Held() != before+100*partWeight {
		t.Errorf("%d bytes more are held for many, %v", c.Held()-before, err)
	}
	_ = conn.Close()
	if one.served(); c.Held() != 0 {
		t.Errorf("%d bytes are held in the end", c.Held())
	}
}

// passingCompressor compresses nothing, and counts what it is given to decompress.
type passingCompressor struct{ decompressed *atomic.Int64 }

func (passingCompressor) Name() string { return "passing" }

func (passingCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return struct {
		io.Writer
		io.Closer
	}{w, io.NopCloser(nil)}, nil
}

func (p passingCompressor) Decompress(r io.Reader) (io.Reader, error) {
	p.decompressed.Add(1)
	return r, nil
}

// A compressed request is refused before it is decompressed, whatever can be: it would take more than is counted of it.
func TestNothingIsDecompressed(t *testing.T) {
	var passed atomic.Int64
	encoding.RegisterCompressor(passingCompressor{&passed})
	l := testbed.Loopback(t)
	(&host{told: make(chan error, 1)}).serve(t, l, heldLimits{conn: 1 << 30, address: 1 << 30, all: 1 << 30})
	conn := testbed.Must(grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	client := pb.NewChubbyClient(conn)
	for _, name := range []string{"passing", gzip.Name} {
		_, err := client.GetContentsAndStat(t.Context(), &pb.GetContentsAndStatRequest{Handle: []byte("handle")}, grpc.UseCompressor(name))
		if !errors.Is(pb.Error(err), api.InvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("a call with %s: %v", name, err)
		}
		stream, err := client.Acquire(t.Context(), &pb.AcquireRequest{Handle: []byte("handle")}, grpc.UseCompressor(name))
		if err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(pb.Error(err), api.InvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("a stream with %s: %v", name, err)
		}
	}
	if n := passed.Load(); n != 0 {
		t.Errorf("%d requests were decompressed", n)
	}
	if _, err := client.GetContentsAndStat(t.Context(), &pb.GetContentsAndStatRequest{}, grpc.UseCompressor(encoding.Identity)); err != nil {
		t.Errorf("a call that says that it is not compressed: %v", err)
	}
}

// closer serves the closing of handles.
type closer struct {
	pb.UnimplementedChubbyServer
	closed []string
}

func (c *closer) CloseHandle(_ context.Context, q *pb.CloseHandleRequest) (*pb.CloseHandleReply, error) {
	c.closed = append(c.closed, string(q.GetHandle()))
	return &pb.CloseHandleReply{}, nil
}

// Programs that were built with the protocol of v0.1.0 call Close. A server serves that as it serves CloseHandle, and counts
// both as one method; what it lets in whatever is held is the same, too.
func TestFormerNamesAreServed(t *testing.T) {
	var counted []string
	s := newService(Config{
		Logger: slog.New(slog.DiscardHandler), Stopwatch: func() time.Duration { return 0 },
		Answered: func(method string, _ api.Code, _ time.Duration, _ string) { counted = append(counted, method) },
	})
	c := &closer{}
	l := bufconn.Listen(4 << 10)
	serveOn(t, s, c, l, newHeld(wide()), testbed.Clock())
	r := newFramed(t, l)
	for _, method := range []string{"/chubby.v1.Chubby/Close", "/chubby.v1.Chubby/CloseHandle"} {
		testbed.NoErr(t, testbed.ErrOf(r.begin(method, &pb.CloseHandleRequest{Handle: []byte(method)})))
		if code := r.ending(); code != codes.OK {
			t.Errorf("%s: %v", method, code)
		}
	}
	if want := []string{"/chubby.v1.Chubby/Close", "/chubby.v1.Chubby/CloseHandle"}; !slices.Equal(c.closed, want) {
		t.Errorf("closed %q; want %q", c.closed, want)
	}
	if want := slices.Repeat([]string{pb.Chubby_CloseHandle_FullMethodName}, 2); !slices.Equal(counted, want) {
		t.Errorf("counted %q; want %q", counted, want)
	}
	if former := pb.FormerName(pb.Chubby_CloseHandle_FullMethodName); former != "/chubby.v1.Chubby/Close" || pb.FormerName(former) != "" {
		t.Errorf("CloseHandle was %q", former)
	}
}

// keeping serves KeepAlives, which wait for leave.
type keeping struct {
	pb.UnimplementedChubbyServer
	entered, leave chan struct{}
}

func (k *keeping) KeepAlives(*pb.KeepAliveRequest, grpc.ServerStreamingServer[pb.KeepAliveReply]) error {
	k.entered <- struct{}{}
	<-k.leave
	return nil
}

// The KeepAlives of a connection are served one after the other, however many come at once, as after a fail-over:
// they wait in the network, and not for a processor, which Raft needs.
func TestKeepAlivesComeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3
		k, l := &keeping{entered: make(chan struct{}, calls), leave: make(chan struct{})}, bufconn.Listen(4<<10)
		serveOn(t, newService(Config{Logger: slog.New(slog.DiscardHandler)}), k, l, newHeld(limitsOf(1<<30)), testbed.Clock())
		r := newFramed(t, l)
		for range calls {
			testbed.Must(r.begin(pb.Chubby_KeepAlives_FullMethodName, &pb.KeepAliveRequest{}))(t)
		}
		synctest.Wait()
		if n := len(k.entered); n != 1 {
			t.Errorf("%d KeepAlives of a connection are served at once", n)
		}
		close(k.leave)
		for range calls {
			r.ending()
		}
	})
}
