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
	"github.com/chubbylock/chubby/client/recipe"
)

// Whoever does not get several locks is told which of them another has, whatever the order in which they
// were given, and holds none of them.
func TestSeveralLocksThatAreNotHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		dial := func() *client.Client {
			c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			return c
		}
		one, two := dial(), dial()
		if _, err := recipe.AcquireAll(t.Context(), one, []string{"/ls/local/zoe"}, recipe.AllOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			try  bool
			wait time.Duration
			code int
			text string
		}{
			{try: true, code: exitHeld, text: "acquire /ls/local/zoe: held by"},
			{wait: 0, code: exitWaited, text: "acquire /ls/local/zoe: --wait 0s ran out; held by"},
			{wait: 5 * time.Second, code: exitWaited, text: "acquire /ls/local/zoe: --wait 5s ran out; held by"},
		} {
			var told buffer
			o := &acquireOptions{workOptions: workOptions{
				globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, verb: "acquire",
				paths: []api.Path{api.MustParsePath("/ls/local/ann"), api.MustParsePath("/ls/local/zoe")}, path: api.MustParsePath("/ls/local/ann"),
				try: c.try, waits: !c.try, wait: c.wait, begun: stopwatch(),
			}}
			held, err := o.acquireAll(t.Context(), t.Context(), two)
			if held != nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v, exit code %d (%v)", c, held, exitCode(err), err)
			}
			if waited := c.wait > 0; waited != strings.Contains(told.String(), "waiting for /ls/local/zoe: held by") {
				t.Errorf("%+v: told %q", c, told.String())
			}
			if locks, err := one.Cell().LocksOf(t.Context(), two.Session()); err != nil || len(locks) != 0 {
				t.Errorf("%+v: it holds %v, %v", c, locks, err)
			}
		}
	})
}
