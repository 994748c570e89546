package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

const guardedLock = "/ls/local/guarded"

// The flag makes this program the guarded server: TestMain, when it reads the
// flags, does not come back from it.
var _ = func() bool {
	flag.Func("guarded-server", "be the guarded server of TestGuard, with its files in this directory", func(dir string) error {
		if err := serveGuarded(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
		return nil
	})
	return true
}()

// guardedServer is a server that the lock protects. It writes down each request
// that was let in, twice: when it begins and before it ends. Both are in the
// request's section, so the order of the lines is that of the work.
type guardedServer struct {
	pb.UnimplementedTestServiceServer
	journal *os.File
}

func serveGuarded(dir string) error {
	store, err := sequencer.OpenFileStore(filepath.Join(dir, "guard"))
	if err != nil {
		return err
	}
	guard, err := sequencer.NewGuard(context.Background(), sequencer.GuardConfig{Locks: []api.Path{api.MustParsePath(guardedLock)}, Store: store})
	if err != nil {
		return err
	}
	s := &guardedServer{}
	if s.journal, err = os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	forGRPC, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	forHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(seqgrpc.UnaryInterceptor(guard)), grpc.StreamInterceptor(seqgrpc.StreamInterceptor(guard)))
	pb.RegisterTestServiceServer(server, s)
	go server.Serve(forGRPC)
	go http.Serve(forHTTP, seqhttp.Middleware(guard)(s))
	fmt.Println("ready", forGRPC.Addr(), forHTTP.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// work is what a request does. Some take long, and go when they are told to.
func (s *guardedServer) work(ctx context.Context) error {
	held, _ := sequencer.FromContext(ctx)
	if _, err := fmt.Fprintf(s.journal, "begin %d\n", held.Token()); err != nil {
		return err
	}
	if rand.N(8) == 0 {
		select {
		case <-time.After(time.Duration(rand.N(20)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	_, err := fmt.Fprintf(s.journal, "end %d\n", held.Token())
	return err
}

func (s *guardedServer) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.work(ctx)
}

func (s *guardedServer) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := s.work(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&pb.StreamingOutputCallResponse{})
}

func (s *guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.work(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// wire is the network between primaries and the guarded server: a proxy, for
// gRPC and for HTTP, that delays requests and repeats some of them, whole, later.
type wire struct {
	pb.UnimplementedTestServiceServer
	t      *testing.T
	dir    string
	server atomic.Pointer[incarnation]
	floor  atomic.Uint64 // the greatest token of a request whose answer was that it was let in
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
	if err != nil {
		w.t.Fatal(err)
	}
	p := spawn(w.t, stdin, os.Args[0], "-guarded-server", w.dir)
	stdin.Close()
	w.t.Cleanup(func() { open.Close() })
	p.waitFor("ready", 20*time.Second)
	var forGRPC, forHTTP string
	if _, err := fmt.Sscanf(p.stdout.String(), "ready %s %s", &forGRPC, &forHTTP); err != nil {
		w.t.Fatalf("%q: %v", p.stdout.String(), err)
	}
	conn, err := grpc.NewClient(forGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	w.server.Store(&incarnation{process: p, stdin: open, conn: conn, url: "http://" + forHTTP})
}

// killServer kills the guarded server with work under way, and starts it again.
func (w *wire) killServer() {
	w.t.Helper()
	old := w.server.Load()
	if err := old.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	<-old.done
	if strings.Contains(old.stderr.String(), "DATA RACE") {
		w.t.Errorf("the guarded server has a data race:\n%s", &old.stderr)
	}
	w.startServer()
}

// delay lets a request be under way for as long as packets are: mostly not long,
// sometimes longer than a primary is in office.
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

// pass carries a request of that sequencer over, late, and perhaps more than
// once. The caller gets the first answer.
func (w *wire) pass(ctx context.Context, text string, send func(ctx context.Context) error) error {
	delay()
	err := w.once(ctx, text, send)
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
			_ = w.once(ctx, text, send)
		})
	}
	return err
}

// errRefused is a refusal over HTTP.
var errRefused = errors.New("412")

// once sends a request once, and judges the answer.
func (w *wire) once(ctx context.Context, text string, send func(ctx context.Context) error) error {
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
	return &pb.SimpleResponse{}, w.pass(ctx, text, func(ctx context.Context) error {
		_, err := pb.NewTestServiceClient(w.server.Load().conn).UnaryCall(onward(ctx), r)
		return err
	})
}

func (w *wire) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	text, onward := outgoing(stream.Context())
	err := w.pass(stream.Context(), text, func(ctx context.Context) error {
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
	if err := w.pass(r.Context(), text, func(ctx context.Context) error { return w.post(ctx, text) }); err != nil {
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

// throne is who has been primary.
type throne struct {
	mu    sync.Mutex // guards texts
	texts []string   // their sequencers, in the order in which they were granted
}

func (h *throne) crown(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// anyone returns the sequencer of the primary, or of one who was and does not
// know that he is not.
func (h *throne) anyone() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	back := 1
	switch n := rand.N(10); {
	case n == 0:
		back += rand.N(5)
	case n < 3:
		back++
	}
	return h.texts[max(len(h.texts)-back, 0)]
}

// reign makes one after the other the primary, for about a second each, until
// stop is closed. In turn they release the lock, are killed, and have the lock
// broken.
func (h *throne) reign(ctx context.Context, w *world, lock *client.Handle, operator *client.Client, stop <-chan struct{}) {
	rest := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-stop:
		}
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if i%3 == 1 {
			p := w.ctl("-o", "json", "acquire", guardedLock, "--lease", "1s", "--lock-delay", "0s")
			p.waitFor("\n", 30*time.Second)
			var line struct{ Sequencer string }
			if err := json.Unmarshal([]byte(p.stdout.String()), &line); err != nil {
				w.t.Error(err)
				return
			}
			h.crown(line.Sequencer)
			rest(300 * time.Millisecond) // and nobody has the lock until the lease is over
			_ = p.cmd.Process.Kill()
			<-p.done
			continue
		}
		held, err := lock.Acquire(ctx, api.Exclusive)
		if err != nil {
			w.t.Error(err)
			return
		}
		h.crown(held.Sequencer().String())
		rest(time.Second)
		if i%3 == 2 {
			if err := operator.BreakLock(ctx, guardedLock, "a test", true); err != nil {
				w.t.Error(err)
			}
		}
		if err := held.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			w.t.Error(err)
		}
	}
}

// TestGuard: whatever the network does with the requests of primaries that
// change every second, the guarded server lets none in with a token below one
// that it let in before, also across kill -9 (Chubby §2.4).
func TestGuard(t *testing.T) {
	requests, kills, reigns := int64(5_000), 2, 8
	if *full {
		requests, kills, reigns = 100_000, 10, 60
	}
	cell := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	holder := cell.client(client.Config{})
	lock, err := holder.Open(ctx, guardedLock, client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, dir: t.TempDir(), room: make(chan struct{}, 512)}
	w.startServer()
	senders := w.listen()

	var thrones throne
	var busy, ruling sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	ruling.Go(func() { thrones.reign(ctx, cell, lock, holder, stop) })
	for {
		thrones.mu.Lock()
		first := len(thrones.texts) > 0
		thrones.mu.Unlock()
		if first || ctx.Err() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	for i := range 64 {
		send := senders[i%len(senders)]
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					send(ctx, thrones.anyone())
				}
			}
		})
	}
	for killed := 0; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		answered := w.accepted.Load() + w.stale.Load()
		if killed < kills && answered > requests*int64(killed+1)/int64(kills+1) {
			w.killServer()
			killed++
		}
		thrones.mu.Lock()
		primaries := len(thrones.texts)
		thrones.mu.Unlock()
		if answered >= requests && primaries >= reigns && killed == kills {
			break
		}
	}
	close(stop)
	busy.Wait()
	w.later.Wait()
	took := time.Since(began)
	ruling.Wait()
	w.verdict(len(thrones.texts), kills, took)
}

// listen starts the proxy and returns the ways to send a request through it.
func (w *wire) listen() []func(ctx context.Context, text string) {
	w.t.Helper()
	proxy := httptest.NewServer(w)
	w.t.Cleanup(proxy.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
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
				_, _ = pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}) // judged on its way
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

// verdict reads the journal of all incarnations.
func (w *wire) verdict(primaries, kills int, took time.Duration) {
	journal, err := os.ReadFile(filepath.Join(w.dir, "journal"))
	if err != nil {
		w.t.Fatal(err)
	}
	var newest uint64
	let, tokens, lower := 0, 0, 0
	for line := range bytes.Lines(journal) {
		var what string
		var token uint64
		if _, err := fmt.Sscanf(string(line), "%s %d\n", &what, &token); err != nil {
			w.t.Fatalf("journal: %q: %v", line, err)
		}
		if what == "begin" {
			let++
		}
		if token < newest {
			if lower++; lower <= 5 {
				w.t.Errorf("%s of token %d after work of token %d", what, token, newest)
			}
		}
		if token > newest {
			newest = token
			tokens++
		}
	}
	answered := w.accepted.Load() + w.stale.Load()
	w.t.Logf("%d requests answered in %v (%.0f/s), %d of them repeated by the network: %d let in (%d in the journal), %d stale ones refused; "+
		"%d unanswered while the server was killed %d times; %d primaries, %d of which were let in",
		answered, took.Round(time.Second), float64(answered)/took.Seconds(), w.repeated.Load(), w.accepted.Load(), let, w.stale.Load(),
		w.lost.Load(), kills, primaries, tokens)
	if n := w.lower.Load(); lower > 0 || n > 0 {
		w.t.Errorf("%d lines of the journal are of lower tokens than those before; %d requests were let in after the answer to one with a higher token", lower, n)
	}
	if int64(let) < w.accepted.Load() || w.stale.Load() < answered/20 || w.accepted.Load() < answered/20 || w.repeated.Load() == 0 || tokens < primaries/2 {
		w.t.Error("the test shows nothing")
	}
	if w.other.Load() > 0 {
		w.t.Errorf("%d answers were neither", w.other.Load())
	}
}
