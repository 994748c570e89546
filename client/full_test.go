package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// However many changes of a session are under way, as when they wait for the cache of a
// client that is cut off, what it holds can be given back.
func TestGivingBackBesideManyChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method != "SetContents" {
				return nil
			}
			return hang
		})
		within, leave := context.WithCancel(t.Context())
		for range 2 * api.MaxOutstanding {
			go func() { _, _ = h.SetContents(within, nil) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Release(ctx); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		if err := h.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		f.script(nil)
		leave()
		closeClient(t, c)
	})
}
