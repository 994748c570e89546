package celltest_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A lock is held on when the master dies; docs/testing.md shows this test.
func TestLockOutlivesTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := celltest.Start(t, 3), t.Context()
		cl, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("web1"), Clock: c.ClockOf("web1")})
		if err != nil {
			t.Fatal(err)
		}
		h, err := cl.Open(ctx, "/ls/local/work", client.OpenOptions{Write: true, Create: client.File, LockDelay: api.DefaultLockDelay})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		c.FailOver()
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(lock.Release(ctx), cl.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
}
