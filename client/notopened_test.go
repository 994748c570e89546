package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// The lock is not held, and the function of Do was not called, also if an answer to the Open was lost, and a later attempt was
// refused while the caller still waits: that is not the Uncertain of a release.
func TestDoThatDoesNotOpenIsNotUncertain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			switch {
			case s.method != "Open" || s.nth > 2:
				return nil
			case s.nth == 2:
				return fail(api.Errorf(api.QuotaExceeded, "too many handles"))
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				_, _ = next() // done, and the answer is lost
				return nil, chubbypb.Status(api.Errorf(api.Uncertain, "the answer was lost"))
			}
		})
		called := false
		err := c.Do(t.Context(), "/ls/foo/x", func(context.Context, *Lock) error { called = true; return nil })
		if called || api.CodeOf(err) != api.Unavailable || errors.Is(err, api.Uncertain) {
			t.Errorf("called %t, %v", called, err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := f.state().handles; n != 0 {
			t.Errorf("%d handles are open at the cell", n)
		}
		closeClient(t, c)
	})
}
