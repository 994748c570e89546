package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Whose lock could not be released is told so, and nobody whose lock was released or lost.
func TestLockThatIsNotReleased(t *testing.T) {
	for what, trouble := range map[string]struct {
		make func(c *celltest.Cell, session *client.Client)
		told bool
	}{
		"none":         {func(*celltest.Cell, *client.Client) {}, false},
		"cut off":      {func(c *celltest.Cell, _ *client.Client) { c.Cut("web1") }, true},
		"session ends": {func(c *celltest.Cell, session *client.Client) { c.Expire(session.Session()) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := celltest.Start(t, 1)
			session, err := client.New(t.Context(), client.Config{Servers: c.Servers(), Dialer: c.DialFrom("web1"), Clock: c.ClockOf("web1")})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = session.Close(ctx) // it may be cut off
			}()
			h, err := session.Open(t.Context(), "/ls/local/nightly", client.OpenOptions{Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			lock, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			trouble.make(c, session)
			var told buffer
			o := &workOptions{globals: &globals{output: "text", timeout: 3 * time.Second}, err: &told}
			o.giveUp(t.Context(), session, held(lock))
			if got := strings.Contains(told.String(), "may not be released yet"); got != trouble.told {
				t.Errorf("%s: told %q", what, told.String())
			}
		})
	}
}
