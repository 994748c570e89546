//go:build linux

package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Uncertain is for calls that may have changed something: what only reads, opens what is there or waits for a lock says that
// its time was over. So Uncertain of Do is of the release alone, and its function was called. What was opened is closed.
func TestWhatChangesNothingIsNotUncertain(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		one, two := dial("h1", func(cfg *client.Config) { cfg.NoCache = true }), dial("h2")
		if _, err := two.Put(ctx, "/ls/local/f", nil); err != nil {
			t.Fatal(err)
		}
		brief := func(call func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			return call(ctx)
		}
		called := false
		work := func(context.Context, *client.Lock) error { called = true; return nil }
		second := func(_ any, err error) error { return err }
		for name, call := range map[string]func(ctx context.Context) error{
			"Open": func(ctx context.Context) error {
				return second(one.Open(ctx, "/ls/local/f", client.OpenOptions{Read: true}))
			},
			"Get":         func(ctx context.Context) error { _, _, err := one.Get(ctx, "/ls/local/f"); return err },
			"List":        func(ctx context.Context) error { return second(one.List(ctx, "/ls/local")) },
			"Delete":      func(ctx context.Context) error { return one.Delete(ctx, "/ls/local/f") },
			"Acquire":     func(ctx context.Context) error { return second(one.Acquire(ctx, lockPath)) },
			"Acquire Try": func(ctx context.Context) error { return second(one.Acquire(ctx, lockPath, client.Try())) },
			"Do":          func(ctx context.Context) error { return one.Do(ctx, lockPath, work) },
		} {
			cell.Cut("h1")
			if err := brief(call); errors.Is(err, api.Uncertain) || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("%s: %v", name, err)
			}
			cell.Heal("h1")
			if _, err := one.Put(ctx, "/ls/local/g", nil); err != nil { // once all is settled
				t.Error(err)
			}
		}
		cell.Cut("h1")
		err := brief(func(ctx context.Context) error {
			return second(one.Open(ctx, "/ls/local/new", client.OpenOptions{Read: true, Create: client.File}))
		})
		cell.Heal("h1")
		if !errors.Is(err, api.Uncertain) {
			t.Errorf("an Open that creates: %v", err)
		}
		if called {
			t.Error("Do called its function without the lock")
		}
		if _, _, err := one.Get(ctx, "/ls/local/f"); err != nil {
			t.Error(err)
		}
		if n := handlesOf(ctx, t, one); n != 0 || one.Stats().Handles != 0 {
			t.Errorf("%d handles are open at the cell, %d here", n, one.Stats().Handles)
		}
	})
}
