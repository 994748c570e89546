package main

import (
	"bytes"
	"context"
	"errors"
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

// --busy-exit-code and --quiet are for a lock that others have: not for CMD's own exit code, a lock that was lost, or a cell
// that does not answer.
func TestBusyIsNoFailure(t *testing.T) {
	held := errors.New("held by ann")
	o := workOptions{globals: &globals{quiet: true}, busyCode: 9, busyCodeGiven: true}
	for _, c := range []struct {
		err  error
		code int
		said bool
	}{
		{&exitError{exitHeld, held}, 9, false},
		{&exitError{exitWaited, held}, 9, false},
		{&exitError{code: exitHeld}, exitHeld, false},
		{&exitError{exitLost, held}, exitLost, true},
		{&exitError{exitWaited, unanswered{held}}, exitWaited, true},
		{held, exitFailed, true},
	} {
		err := o.withBusyCode(c.err)
		var said bytes.Buffer
		o.printError(&said, err)
		if exitCode(err) != c.code || said.Len() > 0 != c.said {
			t.Errorf("%+v: exit %d, and says %q; want %d", c.err, exitCode(err), &said, c.code)
		}
	}
	o.quiet, o.busyCodeGiven = false, false
	if err := o.withBusyCode(&exitError{exitHeld, held}); exitCode(err) != exitHeld || !errors.Is(err, held) {
		t.Errorf("without the flags: %v, exit %d", err, exitCode(err))
	}
}
