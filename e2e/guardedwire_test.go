package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

// wire is the network between primaries and the guarded server: a proxy, for
// gRPC and for HTTP, that delays requests and repeats some of them, whole, later.
type wire struct {
	pb.UnimplementedTestServiceServer
	t      *testing.T
	dir    string
	server atomic.Pointer[incarnation]
	floor  atomic.Uint64 // the greatest token of a request that was answered as accepted
	later  sync.WaitGroup
	room   chan struct{} // bounds the repetitions under way

	accepted, stale, other, lost, repeated, lower atomic.Int64
}

// incarnation is one run of the guarded server.
type incarnation struct {
	*process
	stdin *os.File
	conn  *grpc.ClientConn
	url   string
}

// startServer starts the guarded server, or its next incarnation.
func (w *wire) startServer() {
	w.t.Helper()
	stdin, open, err := os.Pipe()
	noErr(w.t, err)
	p := spawn(w.t, stdin, os.Args[0], "-guarded-server", w.dir)
	stdin.Close()
	w.t.Cleanup(func() { open.Close() })
	p.waitFor("ready", 20*time.Second)
	var forGRPC, forHTTP string
	if _, err := fmt.Sscanf(p.stdout.String(), "ready %s %s", &forGRPC, &forHTTP); err != nil {
		w.t.Fatalf("%q: %v", p.stdout.String(), err)
	}
	conn, err := grpc.NewClient(forGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	noErr(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	w.server.Store(&incarnation{process: p, stdin: open, conn: conn, url: "http://" + forHTTP})
}

// killServer kills the guarded server with work under way, and starts it again.
func (w *wire) killServer() {
	w.t.Helper()
	old := w.server.Load()
	noErr(w.t, old.cmd.Process.Signal(syscall.SIGKILL))
	<-old.done
	if strings.Contains(old.stderr.String(), "DATA RACE") {
		w.t.Errorf("the guarded server has a data race:\n%s", &old.stderr)
	}
	w.startServer()
}

// delay delays a request as a network does: mostly for a short time, sometimes for longer than
// there is the same primary.
func delay() {
	most := 5 * time.Millisecond
	switch rand.N(50) {
	case 0:
		most = 3 * time.Second
	case 1, 2, 3, 4:
		most = 300 * time.Millisecond
	}
	time.Sleep(rand.N(most))
}

// carry carries a request of that sequencer over, late, and perhaps more than once. The caller gets the first answer.
func (w *wire) carry(ctx context.Context, text string, send func(ctx context.Context) error) error {
	delay()
	err := w.sendOnce(ctx, text, send)
	for rand.N(6) == 0 {
		select {
		case w.room <- struct{}{}:
		default:
			return err
		}
		w.later.Go(func() {
			defer func() { <-w.room }()
			time.Sleep(rand.N(3 * time.Second))
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			w.repeated.Add(1)
			_ = w.sendOnce(ctx, text, send)
		})
	}
	return err
}

// errRefused is a refusal over HTTP.
var errRefused = errors.New("412")

// sendOnce sends a request once, and counts the answer.
func (w *wire) sendOnce(ctx context.Context, text string, send func(ctx context.Context) error) error {
	s, err := sequencer.Parse(text)
	if err != nil {
		w.t.Error(err)
		return err
	}
	floor := w.floor.Load()
	err = send(ctx)
	token, newest, told := seqgrpc.Tokens(err)
	switch {
	case err == nil:
		w.accepted.Add(1)
		if s.Token() < floor {
			w.lower.Add(1)
		}
		for old := w.floor.Load(); old < s.Token() && !w.floor.CompareAndSwap(old, s.Token()); {
			old = w.floor.Load()
		}
	case errors.Is(err, errRefused) || grpcstatus.Code(err) == codes.FailedPrecondition && told && token == s.Token() && newest > token:
		w.stale.Add(1)
	case grpcstatus.Code(err) == codes.Unavailable || grpcstatus.Code(err) == codes.Canceled:
		w.lost.Add(1) // the server was being killed
	default:
		w.other.Add(1)
		w.t.Logf("token %d: %v", s.Token(), err)
	}
	return err
}

// outgoing carries the metadata of an incoming call on.
func outgoing(ctx context.Context) (text string, onward func(context.Context) context.Context) {
	text = strings.Join(metadata.ValueFromIncomingContext(ctx, seqgrpc.MetadataKey), "")
	return text, func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, seqgrpc.MetadataKey, text)
	}
}

func (w *wire) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	text, onward := outgoing(ctx)
	return &pb.SimpleResponse{}, w.carry(ctx, text, func(ctx context.Context) error {
		_, err := pb.NewTestServiceClient(w.server.Load().conn).UnaryCall(onward(ctx), r)
		return err
	})
}

func (w *wire) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	text, onward := outgoing(stream.Context())
	err := w.carry(stream.Context(), text, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(onward(ctx))
		defer cancel()
		next, err := pb.NewTestServiceClient(w.server.Load().conn).FullDuplexCall(ctx)
		if err == nil {
			if err = next.Send(&pb.StreamingOutputCallRequest{}); err == nil || errors.Is(err, io.EOF) {
				_, err = next.Recv()
			}
		}
		return err
	})
	if err == nil {
		err = stream.Send(&pb.StreamingOutputCallResponse{})
	}
	return err
}

func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	text := r.Header.Get(seqhttp.Header)
	if err := w.carry(r.Context(), text, func(ctx context.Context) error { return w.post(ctx, text) }); err != nil {
		http.Error(out, err.Error(), http.StatusBadGateway)
	}
}

// post sends a request over HTTP.
func (w *wire) post(ctx context.Context, text string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.Load().url, strings.NewReader("work"))
	if err != nil {
		return err
	}
	r.Header.Set(seqhttp.Header, text)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return grpcstatus.Error(codes.Unavailable, err.Error())
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return grpcstatus.Error(codes.Unavailable, err.Error())
	case response.StatusCode == http.StatusOK:
		return nil
	case response.StatusCode != http.StatusPreconditionFailed:
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	var told struct {
		Error struct{ Token, Newest uint64 }
	}
	if err := json.Unmarshal(body, &told); err != nil || told.Error.Newest <= told.Error.Token || told.Error.Token == 0 {
		return fmt.Errorf("%s: %s: %w", response.Status, body, err)
	}
	return errRefused
}

// listen starts the proxy and returns the ways to send a request through it.
func (w *wire) listen() []func(ctx context.Context, text string) {
	w.t.Helper()
	proxy := httptest.NewServer(w)
	w.t.Cleanup(proxy.Close)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(w.t)
	server := grpc.NewServer()
	pb.RegisterTestServiceServer(server, w)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	w.t.Cleanup(func() { server.Stop(); <-served })
	dial := func(text string) (*grpc.ClientConn, error) {
		source := func() string { return text }
		return grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(seqgrpc.UnaryClientInterceptor(source)), grpc.WithStreamInterceptor(seqgrpc.StreamClientInterceptor(source)))
	}
	conns := &connections{dial: dial, open: map[string]*grpc.ClientConn{}}
	w.t.Cleanup(conns.close)
	return []func(context.Context, string){
		func(ctx context.Context, text string) {
			if conn := conns.get(w.t, text); conn != nil {
				_, _ = pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}) // wire counts the answer
			}
		},
		func(ctx context.Context, text string) {
			httpClient := &http.Client{Transport: seqhttp.Transport(nil, func() string { return text })}
			if response, err := httpClient.Post(proxy.URL, "text/plain", strings.NewReader("work")); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		},
		func(ctx context.Context, text string) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if conn := conns.get(w.t, text); conn != nil {
				if stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx); err == nil {
					_ = stream.Send(&pb.StreamingOutputCallRequest{})
					_, _ = stream.Recv()
				}
			}
		},
	}
}

// connections are one for each primary.
type connections struct {
	dial func(text string) (*grpc.ClientConn, error)

	mu   sync.Mutex // guards open
	open map[string]*grpc.ClientConn
}

func (c *connections) get(t *testing.T, text string) *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[text] == nil {
		conn, err := c.dial(text)
		if err != nil {
			t.Error(err)
			return nil
		}
		c.open[text] = conn
	}
	return c.open[text]
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}
