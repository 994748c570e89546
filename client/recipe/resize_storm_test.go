//go:build linux

package recipe

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// census knows who holds which slot, and the size that a resize has come to.
type census struct {
	mu   sync.Mutex // guards what follows
	held map[*Permit]bool
	size int // 0 while it is not known
}

// settle takes note of the size.
func (c *census) settle(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
}

// look checks that nobody holds a slot that is not below the size.
func (c *census) look(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.held {
		if c.size > 0 && p.Slot() >= c.size && p.Lock().Err() == nil {
			t.Errorf("slot %d is held, of a semaphore of %d", p.Slot(), c.size)
		}
	}
}

func (c *census) enter(p *Permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[p] = true
}

func (c *census) leave(p *Permit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p)
}

// No more permits are out than the size allows, although clients die, give up and take over while
// it is changed.
func TestSemaphoreResizeRandom(t *testing.T) {
	t.Parallel()
	const most = 4
	inWorld(t, func(w *world) {
		s := newStorm(w, most)
		all := &census{held: map[*Permit]bool{}}
		for _, host := range []string{"a", "b", "c", "d", "e", "f"} {
			s.live(host, func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
				defer cancel()
				sem := NewSemaphore(c, semDir, 1+r.IntN(most))
				acquire := sem.Acquire
				if r.IntN(2) == 0 {
					acquire = sem.TryAcquire
				}
				p, err := acquire(ctx, SemaphoreOptions{})
				if err != nil {
					return err
				}
				all.enter(p)
				all.look(w.t)
				s.hold(p.Context(), r, "the semaphore")
				all.look(w.t)
				all.leave(p)
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s.live("resizer", func(c *client.Client, r *rand.Rand) error {
			ctx, cancel := w.brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			defer cancel()
			n := 1 + r.IntN(most)
			all.settle(0)
			if err := ResizeSemaphore(ctx, c, semDir, n); err != nil {
				return err
			}
			all.settle(n)
			all.look(w.t)
			pass(time.Duration(r.IntN(5_000)) * time.Millisecond)
			return nil
		})
		s.rage(0)
	})
}
