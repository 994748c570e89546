//go:build linux

package recipe

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// spoil puts something that others cannot use into a recipe's place: a directory, and a
// file that only the stranger may open.
func (w *world) spoil(directory, file string) {
	w.t.Helper()
	stranger := w.dial("stranger")
	w.mkdir(stranger, directory)
	w.put(stranger, "/ls/local/acl/strangers", "stranger\n")
	h, err := stranger.Open(w.ctx, file, client.OpenOptions{Write: true, Create: client.NewFile,
		ACL: api.ACL{Read: "strangers", Write: "strangers", Change: "strangers"}})
	w.ok(err)
	w.ok(h.Close(w.ctx))
}

// A slot whose place something else has taken is a slot less, and no more than that.
func TestSemaphorePassesOverSpoiltSlots(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		s := NewSemaphore(w.dial("h1"), "/ls/local/s", 3)
		w.mkdir(w.dial("h2"), "/ls/local/s")
		w.spoil("/ls/local/s/"+slotName(0), "/ls/local/s/"+slotName(1))
		for range 5 {
			p, err := s.Acquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			if p.Slot() != 2 {
				t.Errorf("slot %d", p.Slot())
			}
			if _, err := s.TryAcquire(w.ctx, SemaphoreOptions{}); !errors.Is(err, api.LockHeld) {
				t.Errorf("when the other is held: %v", err)
			}
			next := make(chan error, 1)
			go func() {
				p, err := s.Acquire(w.ctx, SemaphoreOptions{})
				if err == nil {
					err = p.Release(w.ctx)
				}
				next <- err
			}()
			pass(verify)
			w.ok(p.Release(w.ctx))
			w.ok(<-next)
		}
	})
}
