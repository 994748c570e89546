package cell_test

import (
	"context"
	"errors"
	"fmt"
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
)

// Every condition of a step counts, also the first of two of one kind.
func TestTxnKeepsEveryCondition(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{})
		a := putText(t, ctx, cl, "/ls/local/a", "a")
		lost := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lost", 0))
		valid := acquire(t, ctx, open(t, ctx, cl, "/ls/local/valid", 0))
		stale := client.IfSequencer(lost.Sequencer())
		noErr(t, lost.Release(ctx))
		for what, two := range map[string][]client.WriteOption{
			"sequencers":  {stale, client.IfSequencer(valid.Sequencer())},
			"generations": {client.IfGeneration(a.Content + 1), client.IfGeneration(a.Content)},
			"instances":   {client.IfInstance(a.Instance + 1), client.IfInstance(a.Instance)},
		} {
			for how, txn := range map[string]*client.Txn{
				"condition":    cl.Txn().If("/ls/local/a", two...).Put("/ls/local/b", nil),
				"of operation": cl.Txn().Put("/ls/local/a", []byte("b"), two...),
			} {
				if _, err := txn.Commit(ctx); !errors.Is(err, api.BadSequencer) && !errors.Is(err, api.GenerationMismatch) {
					t.Errorf("two %s, as a %s: %v", what, how, err)
				}
			}
		}
		_, err := open(t, ctx, cl, "/ls/local/a", 0).SetContents(ctx, []byte("b"), stale, client.IfSequencer(valid.Sequencer()))
		if is := contentsOf(t, ctx, cl, "/ls/local/a"); err == nil || is != "a" {
			t.Errorf("a write on two sequencers: %v, and the file has %q", err, is)
		}
	})
}

// A transaction that is committed again, after one without an answer, is a request of its own: what the first has
// done leaves the caches, and every file may be cached again.
func TestTxnAgainAfterDoubt(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		var loses atomic.Bool
		cl := dial(t, ctx, c, "a", client.Config{Dialer: c.Lossy("a", func(method string) bool {
			return loses.Load() && (strings.HasSuffix(method, "/Txn") || strings.HasSuffix(method, "/Cancel"))
		}), CallTimeout: 2 * time.Second})
		noErr(t, cl.MkdirAll(ctx, "/ls/local/d"))
		was, _ := putText(t, ctx, cl, "/ls/local/d/a", "0"), putText(t, ctx, cl, "/ls/local/d/b", "0")
		_ = contentsOf(t, ctx, cl, "/ls/local/d/a") + contentsOf(t, ctx, cl, "/ls/local/d/b")
		txn := cl.Txn().Put("/ls/local/d/a", []byte("1"), client.IfGeneration(was.Content)).Put("/ls/local/d/b", []byte("1"))
		loses.Store(true)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		mustFail(t, errOf(txn.Commit(short)), api.Uncertain)
		time.AfterFunc(5*time.Second, func() { loses.Store(false) })
		fails(t, errOf(txn.Commit(ctx)), api.GenerationMismatch, "the second time")
		for _, path := range []string{"/ls/local/d/a", "/ls/local/d/b"} {
			for range 2 {
				if is := contentsOf(t, ctx, cl, path); is != "1" {
					t.Errorf("%s has %q", path, is)
				}
			}
			hits := cl.Stats().Cache.Hits
			if _ = contentsOf(t, ctx, cl, path); cl.Stats().Cache.Hits == hits {
				t.Errorf("%s is not cached any more", path)
			}
		}
	})
}

// A name that is too long under the cell's own name is refused under the other, too, before anything is done: nobody
// could be notified, not even its author.
func TestAliasMakesNoLongerNames(t *testing.T) {
	const name = "a-cell-of-a-long-name"
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		cl := dial(t, ctx, c, "a", client.Config{})
		below := "/ls/local"
		for range 4 {
			below += "/" + strings.Repeat("x", 200)
			noErr(t, cl.MkdirAll(ctx, below))
		}
		long := below + "/" + strings.Repeat("x", api.MaxPath-len(below)-1)
		for what, err := range map[string]error{
			"a transaction": func() error { _, err := cl.Txn().Put(long, []byte("x")).Commit(ctx); return err }(),
			"a put":         func() error { _, err := cl.Put(ctx, long, nil); return err }(),
			"a condition":   func() error { _, err := cl.Txn().If(long, client.IfGeneration(0)).Commit(ctx); return err }(),
		} {
			fails(t, err, api.InvalidPath, what)
		}
		if _, err := cl.Txn().Put("/ls/local/a", nil).Delete("/ls/" + name + "/a").Commit(ctx); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("one node under its two names: %v", err)
		}
		h := must(cl.Open(ctx, below, client.OpenOptions{Read: true}))(t)
		if stat, err := h.Stat(ctx); err != nil || stat.Children != 0 {
			t.Errorf("what was refused has made %d nodes: %v", stat.Children, err)
		}
	}, func(cfg *cell.Config) { cfg.Cell = name })
}

// What a transaction is that no client of ours would send is refused at the door, before anything goes to the log: too many
// steps or bytes, steps that say nothing, one node under two names.
func TestTxnIsCheckedAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRights(t)
		caller := w.session("operator")
		put := func(path string, size int) *pb.TxnOperation {
			return &pb.TxnOperation{Action: pb.TxnAction_TXN_ACTION_PUT, Path: path, Contents: make([]byte, size)}
		}
		condition := &pb.TxnCondition{Path: closedFile, Holds: &pb.TxnCondition_Exists{Exists: true}}
		many := &pb.TxnRequest{}
		for i := range api.MaxTxnSteps {
			many.Conditions = append(many.Conditions, condition)
			many.Operations = append(many.Operations, put(fmt.Sprintf("/ls/local/%d", i), 0))
		}
		with := func(edit func(q *pb.TxnRequest)) *pb.TxnRequest {
			q := proto.Clone(many).(*pb.TxnRequest)
			edit(q)
			return q
		}
		holds := func(c *pb.TxnCondition) *pb.TxnRequest {
			return with(func(q *pb.TxnRequest) { q.Conditions[0] = c })
		}
		one := len("/ls/local/a") // a path counts as much as contents
		for what, row := range map[string]struct {
			q    *pb.TxnRequest
			code api.Code
		}{
			"the most steps":        {many, api.OK},
			"one condition more":    {with(func(q *pb.TxnRequest) { q.Conditions = append(q.Conditions, condition) }), api.TooLarge},
			"one operation more":    {with(func(q *pb.TxnRequest) { q.Operations = append(q.Operations, put("/ls/local/b", 0)) }), api.TooLarge},
			"the most bytes":        {&pb.TxnRequest{Operations: []*pb.TxnOperation{put("/ls/local/a", api.MaxContents-one)}}, api.OK},
			"one byte more":         {&pb.TxnRequest{Operations: []*pb.TxnOperation{put("/ls/local/a", api.MaxContents-one+1)}}, api.TooLarge},
			"nothing":               {&pb.TxnRequest{}, api.InvalidArgument},
			"a condition of none":   {holds(&pb.TxnCondition{Path: closedFile}), api.InvalidArgument},
			"of an instance 0":      {holds(&pb.TxnCondition{Path: closedFile, Holds: &pb.TxnCondition_Instance{}}), api.InvalidArgument},
			"of no existence":       {holds(&pb.TxnCondition{Path: closedFile, Holds: &pb.TxnCondition_Exists{}}), api.InvalidArgument},
			"of no sequencer":       {holds(&pb.TxnCondition{Holds: &pb.TxnCondition_Sequencer{}}), api.InvalidArgument},
			"an action of none":     {with(func(q *pb.TxnRequest) { q.Operations[0].Action = 0 }), api.InvalidArgument},
			"an unknown action":     {with(func(q *pb.TxnRequest) { q.Operations[0].Action = 9 }), api.InvalidArgument},
			"contents to delete":    {with(func(q *pb.TxnRequest) { q.Operations[0].Action, q.Operations[0].Contents = 3, []byte("x") }), api.InvalidArgument},
			"one path twice":        {with(func(q *pb.TxnRequest) { q.Operations[1].Path = q.Operations[0].Path }), api.InvalidArgument},
			"create, and delete it": {&pb.TxnRequest{Operations: []*pb.TxnOperation{put("/ls/local/b", 0), {Action: 3, Path: "/ls/local/b"}}}, api.InvalidArgument},
			"of another cell": {with(func(q *pb.TxnRequest) {
				q.Conditions[0] = &pb.TxnCondition{Path: "/ls/other/a", Holds: condition.Holds}
			}), api.WrongCell},
			"no path": {with(func(q *pb.TxnRequest) { q.Operations[0].Path = "/ls/local/a//b" }), api.InvalidPath},
		} {
			row.q.Caller, row.q.Mutation = caller, w.mutation()
			_, err := w.Txn(t.Context(), row.q)
			failIf(t, api.CodeOf(pb.Error(err)) != row.code, "%s: %v, want %v", what, err, row.code)
		}
	})
}

// The answer to a transaction of many files is long, and refused while the calls of the connection hold too much. It was
// done all the same: Commit must not say otherwise. The author's cache must drop the old contents, as the master does not tell an author of
// its own change.
func TestRefusedAnswerOfATransaction(t *testing.T) {
	for name, givenUpAfter := range map[string]time.Duration{"given up at once": 0, "given up after more attempts": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
				answerIsRefused(t, ctx, c, givenUpAfter)
			}, func(cfg *cell.Config) { cfg.ClientMemoryMiB = cell.MinClientMemoryMiB })
		})
	}
}

func answerIsRefused(t *testing.T, ctx context.Context, c *celltest.Cell, givenUpAfter time.Duration) {
	reader := dial(t, ctx, c, "reader", client.Config{})
	holder := dial(t, ctx, c, "holder", client.Config{NoCache: true})
	acquire(t, ctx, open(t, ctx, holder, "/ls/local/lock", 0))
	process := must(client.Dial(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("process"), Clock: celltest.Clock}))(t)
	defer func() { _ = process.Close() }()
	session := func() *client.Client {
		return must(process.NewSession(ctx, client.SessionConfig{Clock: celltest.Clock}))(t)
	}
	author := session()
	defer func() { _ = author.Close(ctx) }()
	var paths []string
	txn := author.Txn()
	for i := range api.MaxTxnSteps {
		path := fmt.Sprintf("/ls/local/%02d-%s", i, strings.Repeat("x", 240))
		paths = append(paths, path)
		putText(t, ctx, holder, path, "old")
		txn.Put(path, []byte("new"))
	}
	for range 3 {
		contentsOf(t, ctx, author, paths[0])
		contentsOf(t, ctx, reader, paths[1])
	}
	c.Cut("reader") // the transaction waits for its cache
	give, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := txn.Commit(give)
		done <- err
	}()
	synctest.Wait()

	// Meanwhile other sessions of the process wait for a lock: each call holds 8 KiB, and the connection may hold 4 MiB.
	waiting, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	for range 12 {
		one := session()
		defer func() { _ = one.Close(ctx) }()
		h := open(t, ctx, one, "/ls/local/lock", 0)
		for range 48 {
			waits.Go(func() { _, _ = h.Acquire(waiting, api.Exclusive) })
		}
	}
	synctest.Wait()
	for contentsOf(t, ctx, holder, paths[0]) == "old" {
		if len(done) > 0 {
			t.Fatalf("it ended before it was done: %v", <-done)
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(givenUpAfter)
	cancel()
	if err := <-done; err != nil && !errors.Is(err, api.Uncertain) {
		t.Errorf("Commit says that nothing was done: %v: %v", api.CodeOf(err), err)
	}
	stop()
	waits.Wait()
	c.Heal("reader")
	for _, later := range []time.Duration{0, time.Minute} {
		time.Sleep(later)
		if is, sees := contentsOf(t, ctx, holder, paths[0]), contentsOf(t, ctx, author, paths[0]); is != sees {
			t.Errorf("%v later the file holds %q, and its author reads %q", later, is, sees)
		}
	}
}

// An Open that creates a file, and whose session ends in the same entry, is answered with SessionExpired although the file was created; a Keeper
// takes that for nothing, and calls the function again.
func TestCreationIsDoneThoughItsSessionEnds(t *testing.T) {
	inCellOf(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		operator := dial(t, ctx, c, "operator", client.Config{})
		k, err := client.Keep(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("kept"), Clock: celltest.Clock, NoCache: true})
		noErr(t, err)
		defer func() { _ = k.Close(ctx) }()
		var session *client.Client
		noErr(t, k.Do(ctx, func(c *client.Client) error { session = c; return nil }))
		var beside sync.WaitGroup
		beside.Go(func() { _, _ = operator.Put(ctx, "/ls/local/other", nil) }) // its entry is under way for a second
		time.Sleep(100 * time.Millisecond)
		beside.Go(func() {
			time.Sleep(100 * time.Millisecond)
			_ = c.Replica("r1").ExpireSession(ctx, session.Session())
		})
		calls := 0
		err = k.Do(ctx, func(c *client.Client) error {
			calls++
			_, err := c.Open(ctx, "/ls/local/new", client.OpenOptions{Write: true, Create: client.NewFile})
			return err
		})
		beside.Wait()
		if is := contentsOf(t, ctx, operator, "/ls/local/new"); is == "absent" {
			t.Fatal("the file was not created: the test proves nothing")
		}
		if calls != 1 {
			t.Errorf("the function was called %d times, although it had created a file the first time; the last answer was: %v", calls, err)
		}
	}, func(cfg *cell.Config) { cell.DelayEntries(cfg, time.Second) })
}
