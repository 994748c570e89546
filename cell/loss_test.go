package cell_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

// losses is the number of rounds of TestForcedLoss; make acceptance sets more than the default.
var losses = flag.Int("losses", 60, "how many rounds TestForcedLoss goes")

// A lock is taken from an unwilling holder only through its lease (decision 10). In random rounds an operator breaks a
// lock, ends its holder's session or tries to delete the node. The holder is alive, paused or cut off, quick or slow to
// release, and sometimes the master dies. No other client gets the lock before the holder has released it or could be
// sure that its time had ended. The sequencer is invalid at once, and a server that has seen the next token refuses the
// old one.
func TestForcedLoss(t *testing.T) {
	inCell(t, func(t *testing.T, _ context.Context, c *celltest.Cell) {
		ctx := t.Context() // a thousand rounds take hours of virtual time
		rng := rand.New(rand.NewPCG(7, 11))
		operator := dial(t, ctx, c, "operator", client.Config{As: "operator"})
		next := dial(t, ctx, c, "next", client.Config{As: "next"})
		store := must(sequencer.OpenFileStore(filepath.Join(t.TempDir(), "guard")))(t)
		defer store.Close()
		outcomes := map[string]int{}
		for n := range *losses {
			round := lossRound{
				store: store,
				t:     t, c: c, name: fmt.Sprintf("/ls/local/l%d", n), operator: operator, next: next,
				how: pick(rng, "break", "end", "delete"), state: pick(rng, "alive", "alive", "paused", "cut-off"),
				slow: time.Duration(rng.Int64N(int64(4 * time.Second))), failOver: rng.IntN(10) == 0, host: fmt.Sprintf("holder%d", n),
			}
			round.run(ctx)
			outcomes[round.how+" "+round.state]++
			if t.Failed() {
				t.Fatalf("round %d: %s of a lock whose holder was %s and released after %v, fail-over %v", n, round.how, round.state, round.slow, round.failOver)
			}
		}
		t.Log(outcomes)
		for _, how := range []string{"break", "end", "delete"} {
			for _, state := range []string{"alive", "paused", "cut-off"} {
				failIf(t, *losses >= 60 && outcomes[how+" "+state] == 0, "no round was a %s of a holder that was %s", how, state)
			}
		}
	}, cell.RefuseEntries)
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

// lossRound is one lock, its holder, and an operator who takes it away.
type lossRound struct {
	t              *testing.T
	c              *celltest.Cell
	store          sequencer.Store // of the server that the lock protects
	operator, next *client.Client
	name, host     string
	how, state     string
	slow           time.Duration // until the holder releases
	failOver       bool

	program sync.WaitGroup // the holder's
	paused  atomic.Int64   // the instant at which the holder's clock stopped; 0 while it runs
	letGo   atomic.Bool
	dead    session.Instant // the latest instant at which the holder could be sure of the loss, by the test's clock
	granted time.Time
}

// clock is the holder's: it stops while the holder is paused.
func (r *lossRound) clock() session.Instant {
	if at := r.paused.Load(); at != 0 {
		return session.Instant(at)
	}
	return celltest.Clock()
}

func (r *lossRound) run(ctx context.Context) {
	const lease, delay = 2 * time.Second, time.Second
	holder, err := client.New(ctx, client.Config{As: "holder", Servers: r.c.Servers(), Dialer: r.c.DialFrom(r.host), Clock: r.clock, Lease: lease})
	if err != nil {
		r.t.Error(err)
		return
	}
	defer func() {
		r.program.Wait()
		r.paused.Store(0)
		r.c.Heal(r.host)
		_ = holder.Close(ctx) // its session may be gone
	}()
	h := open(r.t, ctx, holder, r.name, delay)
	held := acquire(r.t, ctx, h)
	waiting := make(chan *client.Lock, 1)
	r.program.Go(func() {
		l, err := open(r.t, ctx, r.next, r.name, 0).Acquire(ctx, api.Exclusive)
		report(r.t, err)
		r.granted = time.Now()
		waiting <- l
	})
	r.dead = celltest.Clock().Add(held.ExclusiveUntil())
	switch r.state {
	case "paused":
		r.paused.Store(int64(celltest.Clock()))
		r.c.Cut(r.host)
	case "cut-off":
		r.c.Cut(r.host)
	}
	if !r.takeAway(ctx, holder, held) {
		<-waiting
		return
	}
	if r.failOver {
		master := r.c.Master()
		r.c.Kill(master)
		r.c.Restart(master)
	}
	r.program.Go(func() { r.holderLetsGo(ctx, held) })
	l := <-waiting
	r.witness(held, l)
	if l != nil {
		_ = l.Release(ctx) // the round has ended
	}
}

// takeAway does what the round does to the lock, and reports whether that takes it away. Deleting the node is refused,
// and then the holder releases by itself.
func (r *lossRound) takeAway(ctx context.Context, holder *client.Client, held *client.Lock) bool {
	var err error
	switch r.how {
	case "break":
		err = r.operator.BreakLock(ctx, r.name, "a test", false)
	case "end":
		err = r.operator.EndSession(ctx, holder.Session(), "a test")
	case "delete":
		h := open(r.t, ctx, r.operator, r.name, 0)
		fails(r.t, h.Delete(ctx), api.LockHeld, "delete of a node whose lock another holds")
		return true
	}
	if err != nil && r.state == "alive" {
		r.t.Error(err)
		return false
	}
	fails(r.t, r.operator.CheckSequencer(ctx, held.Sequencer().String()), api.BadSequencer, "the sequencer afterwards")
	return true
}

// holderLetsGo is the holder's program: after it noticed the loss, or lost
// contact, it works for a while, and then releases the lock.
func (r *lossRound) holderLetsGo(ctx context.Context, held *client.Lock) {
	<-time.After(r.slow)
	if r.state == "alive" && r.letGo.CompareAndSwap(false, true) {
		_ = held.Release(ctx) // the lock may be lost
	}
}

// witness checks the moment at which the next client has the lock.
func (r *lossRound) witness(held, next *client.Lock) {
	if next == nil {
		return
	}
	at := session.Instant(r.granted.UnixNano())
	sure := r.letGo.Load() || r.state == "alive" && held.ExclusiveUntil() <= 0 || at >= r.dead
	if !sure {
		r.t.Errorf("the next has the lock %v before its holder could be sure of having lost it", r.dead.Sub(at))
	}
	if r.state != "paused" && !r.letGo.Load() && held.Err() == nil {
		r.t.Error("the holder and the next both hold the lock by their own clocks")
	}
	failIf(r.t, next.Token() <= held.Token(), "token %d after %d", next.Token(), held.Token())
	r.server(held, next)
}

// server is the server that the lock protects: it accepts the old holder, then the next, and the old one never again.
func (r *lossRound) server(held, next *client.Lock) {
	ctx := context.Background()
	guard, err := sequencer.NewGuard(ctx, sequencer.GuardConfig{Locks: []api.Path{held.Sequencer().Path}, Store: r.store})
	if err != nil {
		r.t.Error(err)
		return
	}
	for _, step := range []struct {
		who  string
		lock *client.Lock
		want error
	}{{"the holder, before", held, nil}, {"the next", next, nil}, {"the holder, afterwards", held, api.BadSequencer}} {
		if _, err := guard.Check(ctx, step.lock.Sequencer().String()); !errors.Is(err, step.want) {
			r.t.Errorf("%s: %v, want %v", step.who, err, step.want)
		}
	}
}
