//go:build linux

package recipe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A semaphore is not made smaller on the strength of a slot that was taken away again, and who wants it
// keeps its session.
func TestVacatedSlotIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, operator := w.Client("h1"), w.Client("h2"), w.Client("operator")
			sem := NewSemaphore(one, semDir, 3)
			permits := map[int]*Permit{}
			for range 3 {
				p, err := sem.Acquire(w.Ctx, SemaphoreOptions{})
				w.OK(err)
				permits[p.Slot()] = p
			}
			w.OK(permits[1].Release(w.Ctx)) // it is vacated, and slot 2 is waited for
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.Ctx, two, semDir, 1) }()
			pass(time.Second)
			w.OK(operator.BreakLock(w.Ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			p, err := sem.TryAcquire(w.Ctx, SemaphoreOptions{})
			w.OK(err)
			if p.Slot() != 1 {
				t.Errorf("slot %d", p.Slot())
			}
			w.OK(permits[2].Release(w.Ctx))
			if err := <-resized; !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "vacated") {
				t.Errorf("resized: %v", err)
			}
			if size := w.Cat(operator, semDir+"/"+turnstileName); size != "3" || p.Context().Err() != nil {
				t.Errorf("the size is %s, and the slot: %v", size, p.Lock().Err())
			}
			w.Lives(two)
		})
	}
}
