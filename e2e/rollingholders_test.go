package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqgrpc"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// holders are a client of each version, with a lock and an ephemeral file that they have
// from the beginning of a test to its end.
type holders struct {
	cell    *rollingCell
	client  *client.Client
	session api.SessionID
	lock    *client.Lock
	token   uint64

	release   *process // chubbyctl acquire
	ephemeral *process // chubbyctl put --ephemeral
	line      acquiredLine
}

// acquiredLine is the line by which chubbyctl acquire says what it holds.
type acquiredLine struct {
	Sequencer string
	Token     uint64
	Session   string
}

const heldDir = "/ls/local/held"

// startHolders opens the sessions of the holders.
func (r *rollingCell) startHolders(released release) *holders {
	t := r.t
	t.Helper()
	h := &holders{cell: r, client: r.newClient(client.Config{})}
	h.session = h.client.Session()
	for _, file := range []client.OpenOptions{
		{Read: true, Create: client.Directory},
		{Read: true, Write: true, Create: client.NewFile, Ephemeral: true, Contents: []byte("here")},
	} {
		path := heldDir
		if file.Ephemeral {
			path += "/ephemeral-new"
		}
		must(h.client.Open(t.Context(), path, file))(t)
	}
	lock := must(r.handle(t.Context(), h.client, heldDir+"/new").Acquire(t.Context(), api.Exclusive))(t)
	h.lock, h.token = lock, lock.Token()

	ctl := func(args ...string) *process {
		return spawn(t, nil, released.bin("chubbyctl"), append([]string{"--servers", r.servers(), "-o", "json"}, args...)...)
	}
	h.ephemeral = ctl("put", "--ephemeral", heldDir+"/ephemeral-released", "here")
	h.ephemeral.firstLine(20 * time.Second)
	h.release = ctl("acquire", heldDir+"/released")
	if line := h.release.firstLine(20 * time.Second); json.Unmarshal([]byte(line), &h.line) != nil {
		t.Fatalf("chubbyctl acquire printed %q", line)
	}
	return h
}

// check fails the test unless everything is held as at the beginning, as clients of both versions see it.
func (h *holders) check(t *testing.T, released release) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if h.client.Err() != nil || h.client.Session() != h.session || h.lock.Err() != nil || h.lock.Token() != h.token {
		t.Errorf("session %v is %v now (%v), token %d is %d (%v)", h.session, h.client.Session(), h.client.Err(), h.token, h.lock.Token(), h.lock.Err())
	}
	for _, p := range []*process{h.release, h.ephemeral} {
		failIf(t, !p.running(), "%s has ended: %s%s", p.cmd, &p.stdout, &p.stderr)
	}
	for _, seq := range []string{h.lock.Sequencer().String(), h.line.Sequencer} {
		report(t, h.client.CheckSequencer(ctx, seq), "a holder's sequencer")
		h.cell.ctlOf(released, "sequencer", "check", seq).exits(t, 0, "a holder's sequencer, for the release's chubbyctl")
	}
	locks := must(h.client.Cell().Locks(ctx, heldDir))(t)
	want := map[string]string{
		heldDir + "/new":      fmt.Sprintf("%v by session %v with token %d", api.Exclusive, h.session, h.token),
		heldDir + "/released": fmt.Sprintf("%v by session %v with token %d", api.Exclusive, h.line.Session, h.line.Token),
	}
	for _, l := range locks {
		if len(l.Holders) != 1 {
			t.Errorf("%s has %d holders", l.Path, len(l.Holders))
			continue
		}
		if got := fmt.Sprintf("%v by session %v with token %d", l.Mode, l.Holders[0].Session, l.Generation); got != want[l.Path] {
			t.Errorf("%s is held %s, want %s", l.Path, got, want[l.Path])
		}
		delete(want, l.Path)
	}
	failIf(t, len(want) > 0, "these are not held any more: %v", want)
	list := h.cell.ctlOf(released, "ls", heldDir)
	for _, name := range []string{"ephemeral-new", "ephemeral-released"} {
		failIf(t, !strings.Contains(list.out, name+"\n"), "%s is gone: %s%s", name, list.out, list.err)
	}
}

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

// check looks at what the server has written down, and that it has seen that many holders and refused that many late requests.
func (g *guardWitness) check(least int) {
	g.t.Helper()
	let, tokens, lower := g.readJournal()
	g.t.Logf("the guarded server has worked %d times for %d holders, and refused %d late requests; it was killed %d times", let, tokens, g.stale.Load(), g.kills)
	if lower > 0 || g.lower.Load() > 0 || g.other.Load() > 0 {
		g.t.Errorf("%d lines of the journal are of lower tokens than those before; %d late requests were let in, and %d answers were neither", lower, g.lower.Load(), g.other.Load())
	}
	if tokens < least || g.stale.Load() < int64(least) || int64(let) < g.accepted.Load() {
		g.t.Error("the guarded server has seen too little to be a witness")
	}
}

// checkMasters makes each replica the master in turn, and compares what they say about the cell. The state hash is one of
// the log and of a few numbers; this sees each field that clients can see. It needs a cell in which nobody changes
// anything, and a client without a cache.
func (r *rollingCell) checkMasters(c *client.Client) {
	r.t.Helper()
	began := time.Now()
	var first map[string]string
	for _, id := range rollingIDs {
		tells := r.tells(c, id)
		if first == nil {
			first = tells
		}
		paths := maps.Clone(first)
		maps.Copy(paths, tells)
		differ := 0
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if first[path] != tells[path] && differ < 3 {
				r.t.Errorf("of %s, %s of %s tells\n%s\nand %s of %s\n%s", path,
					rollingIDs[0], r.has[rollingIDs[0]].name, first[path], id, r.has[id].name, tells[path])
				differ++
			}
		}
	}
	r.stopIfFailed()
	r.t.Logf("each replica as the master tells the same of %d nodes, locks and sessions (in %v)", len(first), time.Since(began).Round(time.Millisecond))
}

// tells is what a replica tells as the master: of each node, each lock and each session.
func (r *rollingCell) tells(c *client.Client, id string) map[string]string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	for range 3 { // another may be elected meanwhile
		r.transfer(id)
		all := map[string]string{}
		noErr(r.t, describe(ctx, c, "/ls/local", all))
		locks := must(c.Cell().Locks(ctx, "/ls/local"))(r.t)
		for _, l := range locks {
			for i := range l.Holders {
				l.Holders[i].LockDelay, l.Holders[i].Checked = 0, false // the release does not tell them
			}
			all["lock "+l.Path] = fmt.Sprintf("%v, generation %d, held by %+v", l.Mode, l.Generation, l.Holders)
		}
		sessions := must(c.Cell().Sessions(ctx))(r.t)
		for _, s := range sessions {
			all[fmt.Sprintf("session %v", s.Session)] = fmt.Sprintf("%+v, %d locks", s.Holder, s.Locks)
		}
		if s, err := r.status(); err == nil && s.Master == id {
			return all
		}
	}
	r.t.Fatalf("%s does not stay the master", id)
	return nil
}

// describe adds what a client can see of the nodes in a directory, and below it.
func describe(ctx context.Context, c *client.Client, dir string, all map[string]string) error {
	h, err := c.Open(ctx, dir, client.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	list, err := h.ReadDir(ctx)
	if err != nil {
		return err
	}
	for _, stat := range list {
		all[stat.Path.String()] = fmt.Sprintf("%+v", stat)
		if stat.Kind == api.Directory {
			if err := describe(ctx, c, stat.Path.String(), all); err != nil {
				return err
			}
		}
	}
	return h.Close(ctx)
}
