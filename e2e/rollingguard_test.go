package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

// The flag makes this program a client of the guarded server, for holders that are a shell: it sends one request with the
// sequencer in the environment.
var _ = func() bool {
	flag.Func("guarded-work", "have the guarded server at this URL work once, with the sequencer in CHUBBY_SEQUENCER", func(url string) error {
		if err := postWork(context.Background(), url, os.Getenv("CHUBBY_SEQUENCER")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
		return nil
	})
	return true
}()

func postWork(ctx context.Context, url, text string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("work"))
	if err != nil {
		return err
	}
	r.Header.Set(seqhttp.Header, text)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}

// guardWitness is a real server behind a guard, as users have it, which is a witness of who holds a lock: the holders work there, while
// they hold it, and requests of earlier holders arrive late. It also is killed and started again.
type guardWitness struct {
	*wire
	past  primaries // all holders that there have been
	kills int
}

// guardTheLock starts the server, and has late requests of earlier holders arrive at it.
func (l *traffic) guardTheLock() {
	g := &guardWitness{wire: &wire{t: l.cell.t, dir: l.cell.t.TempDir(), room: make(chan struct{}, 64)}}
	g.startServer()
	l.guard = g
	for range 2 {
		l.repeat("a late request", 20*time.Millisecond, g.sendLate)
	}
}

// work has the server work for the holder of the lock, who must not be refused. It is told over gRPC and HTTP by turns.
func (g *guardWitness) work(ctx context.Context, text string) error {
	if err := g.sendOnce(ctx, text, g.by(text)); err != nil {
		return fmt.Errorf("the guard refuses the holder: %w", err)
	}
	return nil
}

// by is a way to send a request.
func (g *guardWitness) by(text string) func(context.Context) error {
	if rand.N(2) == 0 {
		return func(ctx context.Context) error { return g.post(ctx, text) }
	}
	return func(ctx context.Context) error {
		ctx = metadata.AppendToOutgoingContext(ctx, seqgrpc.MetadataKey, text)
		_, err := pb.NewTestServiceClient(g.server.Load().conn).UnaryCall(ctx, &pb.SimpleRequest{})
		return err
	}
}

// sendLate sends a request of an earlier holder, after the server has worked for a later one: it has to be refused.
func (g *guardWitness) sendLate(ctx context.Context) error {
	text := g.past.anySequencer()
	if text == "" {
		return nil
	}
	one, err := sequencer.Parse(text)
	if err != nil || one.Token() >= g.floor.Load() {
		return err
	}
	if err := g.sendOnce(ctx, text, g.by(text)); err == nil {
		return errors.New("the guard lets in a request of an earlier holder: " + text)
	}
	return nil
}

// killGuard kills the server while nobody works there, and starts it again: what it has seen, it still knows.
func (l *traffic) killGuard() {
	l.cell.t.Helper()
	l.whilePaused(func() {
		l.guard.killServer()
		l.guard.kills++
	})
}

// check looks at what the server has written down, and that there was something to refuse.
func (g *guardWitness) check() {
	g.t.Helper()
	let, tokens, lower := g.readJournal()
	g.t.Logf("the guarded server has worked %d times for %d holders, and refused %d late requests; it was killed %d times", let, tokens, g.stale.Load(), g.kills)
	if lower > 0 || g.lower.Load() > 0 || g.other.Load() > 0 {
		g.t.Errorf("%d lines of the journal are of lower tokens than those before; %d late requests were let in, and %d answers were neither", lower, g.lower.Load(), g.other.Load())
	}
	if tokens < 20 || g.stale.Load() < 20 || int64(let) < g.accepted.Load() {
		g.t.Error("the guarded server has seen too little to be a witness")
	}
}
