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
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

const guardedLock = "/ls/local/guarded"

// TestGuard: primaries change every second, and the network delays and repeats their requests. The guarded server
// accepts no request with a token below one that it accepted before, also across kill -9 (Chubby §2.4).
func TestGuard(t *testing.T) {
	besideOthers(t)
	requests, kills, successions := int64(5_000), 2, 8
	if *full {
		requests, kills, successions = 100_000, 10, 60
	}
	cell := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	holder := cell.client(client.Config{})
	lock := must(holder.Open(ctx, guardedLock, client.OpenOptions{Write: true, Create: client.File}))(t)
	w := &wire{t: t, dir: t.TempDir(), room: make(chan struct{}, 512)}
	w.startServer()
	senders := w.listen()

	var past primaries
	var busy, replacing sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	replacing.Go(func() { past.replace(ctx, cell, lock, holder, stop) })
	for {
		past.mu.Lock()
		first := len(past.texts) > 0
		past.mu.Unlock()
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
					send(ctx, past.anySequencer())
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
		past.mu.Lock()
		n := len(past.texts)
		past.mu.Unlock()
		if answered >= requests && n >= successions && killed == kills {
			break
		}
	}
	close(stop)
	busy.Wait()
	w.later.Wait()
	took := time.Since(began)
	replacing.Wait()
	w.checkJournal(len(past.texts), kills, took)
}

// readJournal reads what all incarnations of the server have written: how many requests were let in, of how many tokens, and how many lines
// are of a token below that of a line before.
func (w *wire) readJournal() (let, tokens, lower int) {
	w.t.Helper()
	journal := must(os.ReadFile(filepath.Join(w.dir, "journal")))(w.t)
	var newest uint64
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
	return let, tokens, lower
}

// checkJournal checks the order of the tokens in the journal, and that the test has shown it.
func (w *wire) checkJournal(primaries, kills int, took time.Duration) {
	w.t.Helper()
	let, tokens, lower := w.readJournal()
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
	failIf(w.t, w.other.Load() > 0, "%d answers were neither", w.other.Load())
}

// primaries are those that there have been.
type primaries struct {
	mu    sync.Mutex // guards texts
	texts []string   // their sequencers, in the order in which they were granted
}

func (p *primaries) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = append(p.texts, text)
}

// anySequencer returns the sequencer of the primary, or of an earlier one that does not
// know that it has been replaced; "" if there was none yet.
func (p *primaries) anySequencer() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.texts) == 0 {
		return ""
	}
	back := 1
	switch n := rand.N(10); {
	case n == 0:
		back += rand.N(5)
	case n < 3:
		back++
	}
	return p.texts[max(len(p.texts)-back, 0)]
}

// replace makes one process after the other the primary, for about a second each, until
// stop is closed. In turn they release the lock, are killed, and have the lock broken.
func (p *primaries) replace(ctx context.Context, w *world, lock *client.Handle, operator *client.Client, stop <-chan struct{}) {
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
			acquire := w.ctl("-o", "json", "acquire", guardedLock, "--lease", "1s", "--lock-delay", "0s")
			var line struct{ Sequencer string }
			if err := json.Unmarshal([]byte(acquire.firstLine(30*time.Second)), &line); err != nil {
				w.t.Error(err)
				return
			}
			p.add(line.Sequencer)
			rest(300 * time.Millisecond) // nobody has the lock until the lease has ended
			_ = acquire.cmd.Process.Kill()
			<-acquire.done
			continue
		}
		held, err := lock.Acquire(ctx, api.Exclusive)
		if err != nil {
			w.t.Error(err)
			return
		}
		p.add(held.Sequencer().String())
		rest(time.Second)
		if i%3 == 2 {
			report(w.t, operator.BreakLock(ctx, guardedLock, "a test", true))
		}
		if err := held.Release(ctx); err != nil && !errors.Is(err, api.LockLost) {
			w.t.Error(err)
		}
	}
}

// The flag makes this program the guarded server: TestMain parses the flags, which does not return then.
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

// guardedServer is a server that the lock protects. It writes down each request that it accepts, twice: when it begins
// and before it ends. Both are in the request's section, so the order of the lines is that of the work.
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

// handle does what a request asks for. Some take long, and end when their context does.
func (s *guardedServer) handle(ctx context.Context) error {
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
	return &pb.SimpleResponse{}, s.handle(ctx)
}

func (s *guardedServer) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := s.handle(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&pb.StreamingOutputCallResponse{})
}

func (s *guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.handle(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
