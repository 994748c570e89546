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
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// mutations is how many changes TestLostReplies makes; make acceptance sets
// more than the default.
var mutations = flag.Int("mutations", 500, "how many changes TestLostReplies makes")

// Every change happens exactly once, though three replies in ten are lost after
// the master has acted, and the master dies now and then, so that retries reach
// its successor (decision 13). The test counts effects: each write, creation
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
		if lost.Load() < int64(*mutations/4) || kills.Load() == 0 {
			t.Error("too few failures: the test proves nothing")
		}
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

// killMasters kills the master again and again, and restarts it, until stop is
// closed. It returns how often.
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

// drawsOfRound is how many numbers a round draws: for two writes, a grant and a
// creation.
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
	// A second creation or deletion would fail, because the first one took
	// effect.
	child, err := w.client.Open(ctx, w.name+"-child", client.OpenOptions{Write: true, Create: client.NewFile})
	if err != nil || !child.Created() {
		return fmt.Errorf("create: %w", err)
	}
	if err := child.Delete(ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return child.Close(ctx)
}
