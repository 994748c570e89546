//go:build linux

package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// What is given back by one whose time is over is given back, also while the cell is away.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		lock := NewRWLock(one, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay})
		over, cancel := context.WithCancel(w.Ctx)
		cancel()
		for range 3 {
			l, err := lock.Lock(w.Ctx)
			w.OK(err)
			w.Cut("h1")
			if err := l.Release(over); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release at the end of the context: %v", err)
			}
			ctx, cancel := w.Brief(2 * time.Second)
			if err := l.Release(ctx); !errors.Is(err, api.Uncertain) {
				t.Errorf("Release while the cell is away: %v", err)
			}
			cancel()
			w.Heal("h1")
			ctx, cancel = w.Brief(2 * time.Second)
			other, err := NewRWLock(two, "/ls/local/lock", RWLockOptions{LockDelay: api.DefaultLockDelay}).Lock(ctx)
			w.OK(err)
			cancel()
			w.OK(other.Release(w.Ctx))
			w.OK(l.Release(w.Ctx))
		}
	})
}
