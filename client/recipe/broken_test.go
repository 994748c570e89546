//go:build linux

package recipe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// lives fails the test if a session is over some leases later: the cell extends none whose owner keeps a
// lock that was taken away.
func (w *world) lives(c *client.Client) {
	w.t.Helper()
	pass(2 * time.Minute)
	if err := c.Err(); err != nil {
		w.t.Errorf("the session is over: %v", err)
	}
}

// A semaphore is not made smaller on the strength of a slot that was taken away again, and who wants it
// keeps its session.
func TestVacatedSlotIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
			sem := NewSemaphore(one, semDir, 3)
			permits := map[int]*Permit{}
			for range 3 {
				p, err := sem.Acquire(w.ctx, SemaphoreOptions{})
				w.ok(err)
				permits[p.Slot()] = p
			}
			w.ok(permits[1].Release(w.ctx)) // it is vacated, and slot 2 is waited for
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.ctx, two, semDir, 1) }()
			pass(time.Second)
			w.ok(operator.BreakLock(w.ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			p, err := sem.TryAcquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			if p.Slot() != 1 {
				t.Errorf("slot %d", p.Slot())
			}
			w.ok(permits[2].Release(w.ctx))
			if err := <-resized; !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "vacated") {
				t.Errorf("resized: %v", err)
			}
			if size := w.cat(operator, semDir+"/"+turnstileName); size != "3" || p.Context().Err() != nil {
				t.Errorf("the size is %s, and the slot: %v", size, p.Lock().Err())
			}
			w.lives(two)
		})
	}
}
