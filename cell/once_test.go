package cell_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mutations is how many changes TestLostReplies makes; make acceptance sets more than the default.
var mutations = flag.Int("mutations", 500, "how many changes TestLostReplies makes")

// Every change happens exactly once, though three replies in ten are lost after the master has acted, and the master
// dies now and then, so that retries reach its successor (decision 13). The test counts effects: each write, creation
// and grant draws one number from the cell's counter, and nothing else does.
func TestLostReplies(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		const workers = 4
		var lost, kills atomic.Int64
		random := &chance{rng: rand.New(rand.NewPCG(1, 2))}
		lossy := func(method string) bool {
			if strings.HasSuffix(method, "/KeepAlive") || strings.HasSuffix(method, "/Locate") || random.below(10) >= 3 {
				return false
			}
			lost.Add(1)
			return true
		}
		began := time.Now()
		var clients []*client.Client
		for w := range workers {
			clients = append(clients, dial(t, ctx, c, fmt.Sprintf("host%d", w), client.Config{
				NoCache: true, // the test reads the generations of locks
				Dialer:  c.Lossy(fmt.Sprintf("host%d", w), lossy), CallTimeout: 2 * time.Second,
			}))
		}
		quiet := open(t, ctx, dial(t, ctx, c, "quiet", client.Config{}), "/ls/local/counter", 0)
		first := firstWrite(t, ctx, quiet)
		var working sync.WaitGroup
		for w, cl := range clients {
			working.Go(func() {
				(&onceWorker{t: t, client: cl, name: fmt.Sprintf("/ls/local/w%d", w)}).run(ctx, *mutations/workers)
			})
		}
		stop := make(chan struct{})
		var killing sync.WaitGroup
		killing.Go(func() { kills.Store(killMasters(c, 2*time.Second, stop)) })
		working.Wait()
		close(stop)
		killing.Wait()
		rounds := *mutations / workers / 8
		want := first + 1 + api.Generation(workers*(1+rounds*drawsOfRound)) // each worker creates its file, and this line's write counts too
		if last := firstWrite(t, ctx, quiet); last != want {
			t.Errorf("%d numbers were drawn, and %d were asked for: something was done twice, or not at all", last-first, want-first)
		}
		t.Logf("%d changes in %v of virtual time: %d replies lost, %d masters killed", *mutations, time.Since(began), lost.Load(), kills.Load())
		failIf(t, lost.Load() < int64(*mutations/4) || kills.Load() == 0, "too few failures: the test proves nothing")
	}, cell.RefuseEntries)
}

// chance is a random source for several goroutines.
type chance struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// killMasters kills the master again and again, and restarts it, until stop is closed. It returns how often.
func killMasters(c *celltest.Cell, every time.Duration, stop <-chan struct{}) (kills int64) {
	for ; ; kills++ {
		select {
		case <-stop:
			return kills
		case <-time.After(every):
		}
		master := c.Master()
		c.Kill(master)
		<-time.After(time.Second)
		c.Restart(master)
	}
}

// onceWorker makes changes of every kind and counts their expected effects.
type onceWorker struct {
	t      *testing.T
	client *client.Client
	name   string

	content, acls api.Generation // of the last writes
}

// run makes n changes in rounds of eight kinds.
func (w *onceWorker) run(ctx context.Context, n int) {
	h, err := w.client.Open(ctx, w.name, client.OpenOptions{Read: true, Write: true, ChangeACL: true, Create: client.NewFile})
	if err != nil {
		w.t.Error("create:", err)
		return
	}
	var token api.Generation
	for round := range n / 8 {
		if err := w.round(ctx, h, &token); err != nil {
			w.t.Errorf("%s, round %d: %v", w.name, round, err)
			return
		}
		stat, err := h.Stat(ctx)
		if err != nil {
			w.t.Error("stat:", err)
			return
		}
		if stat.Content != w.content || stat.ACLs != w.acls || stat.Lock != token {
			w.t.Errorf("%s, round %d: contents, ACL and lock are at %d, %d, %d; want %d, %d, %d", w.name, round, stat.Content, stat.ACLs, stat.Lock, w.content, w.acls, token)
			return
		}
	}
}

// drawsOfRound is how many numbers a round draws: for two writes, a grant and a creation.
const drawsOfRound = 4

func (w *onceWorker) round(ctx context.Context, h *client.Handle, token *api.Generation) error {
	written, err := h.SetContents(ctx, []byte(w.name))
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	described, err := h.SetACL(ctx, api.ACL{Read: "everyone"})
	if err != nil {
		return fmt.Errorf("set ACL: %w", err)
	}
	w.content, w.acls = written.Content, described.ACLs
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if got := lock.Sequencer().Generation; got <= *token {
		return fmt.Errorf("the lock was granted with token %d after %d", got, *token)
	}
	*token = lock.Sequencer().Generation
	if _, err := h.TryAcquire(ctx, api.Exclusive); !errors.Is(err, api.LockHeld) {
		return fmt.Errorf("try to acquire what is held: %w", err)
	}
	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	// A second creation or deletion would fail, because the first one took effect.
	child, err := w.client.Open(ctx, w.name+"-child", client.OpenOptions{Write: true, Create: client.NewFile})
	if err != nil || !child.Created() {
		return fmt.Errorf("create: %w", err)
	}
	if err := child.Delete(ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return child.Close(ctx)
}

// copyRows has a row for each RPC that changes something and answers with more than that it was done: how a session makes the
// change, by that number. Each has files of its own.
func copyRows() map[protoreflect.Name]func(ctx context.Context, w *program, about copied) (proto.Message, error) {
	const exclusive = pb.LockMode_LOCK_MODE_EXCLUSIVE
	return map[protoreflect.Name]func(ctx context.Context, w *program, about copied) (proto.Message, error){
		"Open": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			return w.Open(ctx, &pb.OpenRequest{Caller: about.caller, Mutation: about.mutation,
				Path: about.made, Read: true, Write: true, Create: pb.Create_CREATE_MAY, Contents: []byte("one")})
		},
		"SetContents": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			return w.SetContents(ctx, &pb.SetContentsRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Contents: []byte("one")})
		},
		"SetACL": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			return w.SetACL(ctx, &pb.SetACLRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Acl: &pb.ACL{Read: "operator"}})
		},
		"Txn": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			return w.Txn(ctx, &pb.TxnRequest{Caller: about.caller, Mutation: about.mutation, Operations: []*pb.TxnOperation{
				{Action: pb.TxnAction_TXN_ACTION_PUT, Path: about.there, Contents: []byte("one")},
				{Action: pb.TxnAction_TXN_ACTION_CREATE, Path: about.made, Contents: []byte("one")},
			}})
		},
		"TryAcquire": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			return w.TryAcquire(ctx, &pb.TryAcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive})
		},
		"Acquire": func(ctx context.Context, w *program, about copied) (proto.Message, error) {
			stream, err := w.Acquire(ctx, &pb.AcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive})
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		},
		"Cancel": func(ctx context.Context, w *program, about copied) (proto.Message, error) { // of a lock that was granted
			if _, err := w.TryAcquire(ctx, &pb.TryAcquireRequest{Caller: about.caller, Mutation: about.mutation, Handle: about.handle, Mode: exclusive}); err != nil {
				return nil, err
			}
			return w.Cancel(ctx, &pb.CancelRequest{Caller: about.caller, Mutation: about.mutation})
		},
	}
}

// presentAnswers says why the answer to a change may be what is there when it is answered.
func presentAnswers() map[protoreflect.Name]string {
	const ofCell = "it says how the cell is now, which nobody's change depends on"
	return map[protoreflect.Name]string{"FinishUpgrade": ofCell, "Restore": ofCell}
}

// copied is what a change is made with, each time that it is sent.
type copied struct {
	caller   *pb.Caller
	mutation *pb.Mutation
	handle   []byte // of there
	there    string // a file
	made     string // a file that is absent
}

// The answer to a change says what that change has done, and nothing of what others have done since: a client whose first
// answer was lost gets it by sending the change again, and goes on from the generations in it.
func TestEveryChangeIsAnsweredByItsResult(t *testing.T) {
	rows, exempt := copyRows(), presentAnswers()
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		for _, method := range calls() {
			if method.Input().Fields().ByName("mutation") == nil || method.Output().Fields().Len() == 0 {
				continue
			}
			if _, ok := exempt[method.Name()]; ok {
				delete(exempt, method.Name())
				continue
			}
			send, ok := rows[method.Name()]
			if !ok {
				t.Errorf("%s changes something, and has no row in copyRows: say there how it is sent", method.Name())
				continue
			}
			delete(rows, method.Name())
			one := w.session("operator")
			about := copied{caller: one, there: "/ls/local/there-" + string(method.Name()), made: "/ls/local/made-" + string(method.Name())}
			about.handle = w.open(one, &pb.OpenRequest{Path: about.there, Read: true, Write: true, ChangeAcl: true, Create: pb.Create_CREATE_MAY})
			about.mutation = w.mutation()
			first, err := send(t.Context(), w, about)
			stopIf(t, err != nil, "%s: %v", method.Name(), err)
			another := w.session("operator")
			w.changeAll(another, about.there)
			w.changeAll(another, about.made)
			again, err := send(t.Context(), w, about)
			stopIf(t, err != nil, "%s, sent again: %v", method.Name(), err)
			if !proto.Equal(first, again) {
				t.Errorf("%s was answered with\n%v\nand, after others had changed the node, with\n%v", method.Name(), first, again)
			}
		}
	})
	for name := range exempt {
		t.Errorf("presentAnswers names %s, which is no RPC that changes something and has an answer", name)
	}
	for name := range rows {
		t.Errorf("copyRows has a row for %s, which is no RPC that changes something and has an answer", name)
	}
}

// changeAll changes all that there is of a file: its contents, the names of its ACLs and its lock.
func (w *program) changeAll(caller *pb.Caller, path string) {
	w.t.Helper()
	handle := w.open(caller, &pb.OpenRequest{Path: path, Read: true, Write: true, ChangeAcl: true, Create: pb.Create_CREATE_MAY})
	_, err := w.SetContents(w.t.Context(), &pb.SetContentsRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Contents: []byte("another")})
	if err == nil {
		_, err = w.SetACL(w.t.Context(), &pb.SetACLRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Acl: &pb.ACL{Write: "operator"}})
	}
	if err == nil {
		_, err = w.TryAcquire(w.t.Context(), &pb.TryAcquireRequest{Caller: caller, Mutation: w.mutation(), Handle: handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE})
	}
	if err != nil && api.CodeOf(pb.Error(err)) != api.LockHeld {
		w.t.Fatal(err)
	}
}

// The answers to a change of the replicas are lost for a while, in which the change goes on. The operator gets the answer that the log has
// given: it was done.
func TestChangeOfMembersIsAnsweredOnce(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		joined := joins(ctx, c, "r4")
		time.Sleep(time.Second)
		until := time.Now().Add(5 * time.Second)
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true, Dialer: c.Lossy("operator", func(method string) bool {
			return method == "/chubby.v1.Chubby/ChangeMembers" && time.Now().Before(until)
		})})
		report(t, client.ChangeMembers(ctx, by, client.MemberChange{Add: "r4", Raft: "r4:7431"}, nil), "it was done, and its author hears:")
		noErr(t, <-joined)
	})
}
