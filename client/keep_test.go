package client

import (
	"context"
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A change whose answer was lost before the session ended may have been made: its function is not called again. One that
// was refused because the session had ended was not made.
func TestKeeperAfterALostAnswer(t *testing.T) {
	for _, lost := range []bool{true, false} {
		inBubble(t, func(t *testing.T, f *fake) {
			k, err := Keep(t.Context(), f.config())
			if err != nil {
				t.Fatal(err)
			}
			ended := fail(api.Errorf(api.SessionExpired, "there is no such session"))
			f.script(func(s seen) verb {
				switch {
				case s.method != "SetContents":
					return nil
				case s.nth == 1 && lost:
					return func(_ context.Context, next func() (any, error)) (any, error) {
						_, _ = next()
						return nil, chubbypb.Status(api.Errorf(api.Uncertain, "the answer was lost"))
					}
				case s.nth == 1, s.nth == 2 && lost:
					return ended
				}
				return nil
			})
			calls := 0
			err = k.Do(t.Context(), func(c *Client) error {
				calls++
				h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true})
				if err != nil {
					return err
				}
				_, err = h.SetContents(t.Context(), []byte("new"))
				return err
			})
			want := 2
			if lost {
				want = 1
			}
			if calls != want || lost != errors.Is(err, api.SessionExpired) {
				t.Errorf("lost %v: called %d times, %v", lost, calls, err)
			}
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
