//go:build linux

package recipe

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// census knows who holds which slot, and the size that a resize has come to.
type census struct {
	mu   sync.Mutex // guards what follows
	held map[*Permit]bool
	size int // 0 while it is not known
}

// note takes note of a change, and checks that nobody holds a slot that is not below the size.
func (c *census) note(t *testing.T, change func()) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	for p := range c.held {
		if c.size > 0 && p.Slot() >= c.size && p.Err() == nil {
			t.Errorf("slot %d is held, of a semaphore of %d", p.Slot(), c.size)
		}
	}
}

// No more permits are out than the size allows, although clients die, give up and take over while
// it is changed.
func TestSemaphoreResizeRandom(t *testing.T) {
	t.Parallel()
	const most = 4
	inWorld(t, func(w *world) {
		s := recipetest.NewStorm(w.World, most, *rounds)
		all := &census{held: map[*Permit]bool{}}
		for _, host := range []string{"a", "b", "c", "d", "e", "f"} {
			s.Live(host, func(c *client.Client, r *rand.Rand) error {
				ctx, cancel := w.Brief(time.Duration(r.IntN(20_000)) * time.Millisecond)
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
				all.note(t, func() { all.held[p] = true })
				s.Hold(p.Context(), r, "the semaphore", 1)
				all.note(t, func() {})
				all.note(t, func() { delete(all.held, p) })
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s.Live("resizer", func(c *client.Client, r *rand.Rand) error {
			ctx, cancel := w.Brief(time.Duration(r.IntN(60_000)) * time.Millisecond)
			defer cancel()
			n := 1 + r.IntN(most)
			all.note(t, func() { all.size = 0 })
			if err := ResizeSemaphore(ctx, c, semDir, n); err != nil {
				return err
			}
			all.note(t, func() { all.size = n })
			pass(time.Duration(r.IntN(5_000)) * time.Millisecond)
			return nil
		})
		s.Rage(0, 0)
	})
}
