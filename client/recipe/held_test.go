//go:build linux

package recipe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// rounds is how many random rounds the tests of the recipes make that must never let one too many
// through, or one too early. The default takes some seconds under the race detector.
var rounds = flag.Int("rounds", 60, "random rounds of each recipe's test")

// claims is the model that recipes of exclusion are checked against: who says that he holds what, told
// by himself, or by the test that has taken it from him.
type claims struct {
	mu    sync.Mutex
	held  map[string]map[*claim]bool // by what is held
	most  int                        // of one thing at a time
	fault error                      // the first
	total int
}

// claim is one hold.
type claim struct {
	of   *claims
	what string
}

func newClaims(most int) *claims { return &claims{held: map[string]map[*claim]bool{}, most: most} }

// begin notes that somebody holds something from now on.
func (c *claims) begin(what string) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := &claim{of: c, what: what}
	if c.held[what] == nil {
		c.held[what] = map[*claim]bool{}
	}
	c.held[what][one] = true
	c.total++
	if n := len(c.held[what]); n > c.most && c.fault == nil {
		c.fault = fmt.Errorf("%d hold %s at once, and at most %d may", n, what, c.most)
	}
	return one
}

// end notes that he does not any more, before he says so to the cell.
func (c *claim) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.held[c.what], c)
}

func (c *claims) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		t.Error(c.fault)
	}
}

// pass lets virtual time pass: all tests here are in the bubble of a world.
func pass(d time.Duration) { <-time.After(d) }

// try dials a host again and again, as one whose session may end at any time.
func (w *world) try(host string) (*client.Client, error) { return client.New(w.ctx, w.config(host)) }

// end closes a client whose session may be gone.
func end(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// brief returns a context of that length.
func (w *world) brief(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, d)
}

// What is given back by one whose time is over is given back, also while the cell is away.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		lock := NewRWLock(one, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay})
		over, cancel := context.WithCancel(w.ctx)
		cancel()
		for range 3 {
			l, err := lock.Lock(w.ctx)
			w.ok(err)
			w.Cut("h1")
			if err := l.Release(over); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release at the end of the context: %v", err)
			}
			ctx, cancel := w.brief(2 * time.Second)
			if err := l.Release(ctx); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release while the cell is away: %v", err)
			}
			cancel()
			w.Heal("h1")
			ctx, cancel = w.brief(2 * time.Second)
			other, err := NewRWLock(two, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay}).Lock(ctx)
			w.ok(err)
			cancel()
			w.ok(other.Release(w.ctx))
			w.ok(l.Release(w.ctx))
		}
	})
}
