//go:build linux

package recipe

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// A slot whose place something else has taken is a slot less, and no more than that.
func TestSemaphorePassesOverSpoiltSlots(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		s := NewSemaphore(w.Client("h1"), "/ls/local/s", 3)
		w.Mkdir(w.Client("h2"), "/ls/local/s")
		w.Spoil("/ls/local/s/"+slotName(0), "/ls/local/s/"+slotName(1))
		for range 5 {
			p, err := s.Acquire(w.Ctx, SemaphoreOptions{})
			w.OK(err)
			if p.Slot() != 2 {
				t.Errorf("slot %d", p.Slot())
			}
			if _, err := s.TryAcquire(w.Ctx, SemaphoreOptions{}); !errors.Is(err, api.LockHeld) {
				t.Errorf("when the other is held: %v", err)
			}
			next := make(chan error, 1)
			go func() {
				p, err := s.Acquire(w.Ctx, SemaphoreOptions{})
				if err == nil {
					err = p.Release(w.Ctx)
				}
				next <- err
			}()
			pass(verify)
			w.OK(p.Release(w.Ctx))
			w.OK(<-next)
		}
	})
}
