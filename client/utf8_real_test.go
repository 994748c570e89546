//go:build linux

// A cell needs more of its system than a client does.

package client_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Text that cannot be sent is refused at once, and named, whatever call it is for: no
// attempt will ever do better.
func TestTextThatIsNoUTF8(t *testing.T) {
	const text = "caf\xe9"
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		config := client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock}
		c, err := client.New(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Open(ctx, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range []struct {
			field string
			call  func() error
		}{
			{"reason", func() error {
				_, err := h.Acquire(ctx, api.Exclusive, client.Reason(text))
				return err
			}},
			{"reason", func() error {
				_, err := h.TryAcquire(ctx, api.Exclusive, client.Reason(text))
				return err
			}},
			{"reason", func() error { return c.BreakLock(ctx, "/ls/local/lock", text, false) }},
			{"reason", func() error { return c.EndSession(ctx, c.Session()+1, text) }},
			{"principal", func() error { return c.SetPrincipalQuota(ctx, text, api.Quota{Nodes: 1}) }},
			{"to", func() error {
				_, err := c.Transfer(ctx, text)
				return err
			}},
			{"sequencer", func() error { return c.CheckSequencer(ctx, text) }},
			{"as", func() error {
				named := config
				named.As = text
				_, err := client.New(ctx, named)
				return err
			}},
		} {
			begun := time.Now()
			err := one.call()
			if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), strconv.Quote(one.field)) {
				t.Errorf("%s: %v", one.field, err)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s: refused after %v", one.field, took)
			}
		}
		// What was refused leaves nothing behind: neither a place in the queue nor a request that is owed an answer.
		l, err := h.Acquire(ctx, api.Exclusive, client.Reason("café"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Release(ctx), c.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
}
