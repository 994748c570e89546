//go:build linux

package recipe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A double barrier whose state could not name all participants is refused at once, before anybody waits in it.
func TestDoubleBarrierOfALongPath(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.dial("h1"), w.dial("h2")
		dir := "/ls/local"
		for range 3 {
			dir += "/" + strings.Repeat("ü", api.MaxComponent/2) // which takes three times its bytes in a sequencer
			w.mkdir(one, dir)
		}
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(one, dir+"/big", MaxParty).Enter(ctx); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "shorter path") {
			t.Errorf("%v", err)
		}
		if locks, err := two.Cell().LocksOf(w.ctx, one.Session()); err != nil || len(locks) != 0 {
			t.Errorf("%v, %v", locks, err)
		}
		entered := make(chan error, 2)
		for range 2 {
			go func() {
				p, err := NewDoubleBarrier(two, dir+"/small", 2).Enter(ctx)
				if err == nil {
					err = p.Leave(ctx)
				}
				entered <- err
			}()
		}
		w.ok(<-entered)
		w.ok(<-entered)
	})
}
