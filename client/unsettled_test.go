package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A refusal that the log does not stand behind says nothing of an earlier attempt,
// whose answer was lost: the request is withdrawn, and a lock that it got given
// back. One that it does is the outcome.
func TestRefusalAfterALostAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		refusal *api.Error
		done    bool // the attempt before
		want    api.Code
		cancels int
	}{
		"done, and refused by the master alone":     {api.Errorf(api.QuotaExceeded, "too many wait"), true, api.Uncertain, 1},
		"not done, and refused by the master alone": {api.Errorf(api.LockHeld, "others come first"), false, api.Uncertain, 1},
		"refused by the log":                        {&api.Error{Code: api.QuotaExceeded, Message: "too many wait", Final: true}, false, api.QuotaExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
				if err != nil {
					t.Fatal(err)
				}
				f.script(func(s seen) verb {
					switch {
					case s.method != "TryAcquire":
						return nil
					case s.nth == 1:
						return func(_ context.Context, next func() (any, error)) (any, error) {
							if test.done {
								_, _ = next()
							}
							return nil, chubbypb.Status(api.Errorf(api.Uncertain, "the answer was lost"))
						}
					}
					return fail(test.refusal)
				})
				if _, err := h.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, test.want) {
					t.Errorf("TryAcquire: %v; want %v", err, test.want)
				}
				synctest.Wait()
				if n := len(f.heard("Cancel")); n != test.cancels {
					t.Errorf("%d requests were withdrawn; want %d", n, test.cancels)
				}
				if s := f.state(); s.held > 0 {
					t.Errorf("the lock is held, with token %d", s.held)
				}
				if open := c.numbers.wireMutation(0).GetOutstanding(); len(open) != 0 {
					t.Errorf("outstanding %v", open)
				}
				closeClient(t, c)
			})
		})
	}
}
