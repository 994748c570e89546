//go:build linux

package recipe

import (
	"context"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// What a recipe holds is given back at once, also by those whose context has ended, as
// that of a program that got a signal. The session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	const delay = api.DefaultLockDelay
	for name, take := range map[string]func(w *world, c *client.Client) (giveBack func(context.Context) error, err error){
		"permit": func(w *world, c *client.Client) (func(context.Context) error, error) {
			p, err := NewSemaphore(c, "/ls/local/semaphore", 1).Acquire(w.ctx, SemaphoreOptions{LockDelay: delay})
			return p.Release, err
		},
		"write lock": func(w *world, c *client.Client) (func(context.Context) error, error) {
			l, err := NewRWLock(c, "/ls/local/file", RWLockOptions{LockDelay: delay}).Lock(w.ctx)
			return l.Release, err
		},
		"locks": func(w *world, c *client.Client) (func(context.Context) error, error) {
			l, err := AcquireAll(w.ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: delay})
			return l.Release, err
		},
		"presence": func(w *world, c *client.Client) (func(context.Context) error, error) {
			p, err := Announce(w.ctx, c, "/ls/local/up", "name", nil)
			return p.Withdraw, err
		},
		"publication": func(w *world, c *client.Client) (func(context.Context) error, error) {
			p, err := Publish(w.ctx, c, "/ls/local/service", Endpoint{Address: "127.0.0.1:9999"})
			return p.Withdraw, err
		},
		"primary": func(w *world, c *client.Client) (func(context.Context) error, error) {
			p, err := Campaign(w.ctx, c, "/ls/local/primary", CampaignOptions{Name: "name", LockDelay: delay})
			return p.Resign, err
		},
		"double barrier": func(w *world, c *client.Client) (func(context.Context) error, error) {
			p, err := NewDoubleBarrier(c, "/ls/local/double", 1).Enter(w.ctx)
			return p.Leave, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSmallWorld(t, func(w *world) {
				one, two := w.dial("one"), w.dial("two")
				giveBack, err := take(w, one)
				w.ok(err)
				over, cancel := context.WithCancel(w.ctx)
				cancel()
				w.ok(giveBack(over))
				began := time.Now()
				again, err := take(w, two)
				w.ok(err)
				if d := time.Since(began); d > time.Second {
					t.Errorf("the next had it after %v", d)
				}
				w.ok(again(w.ctx))
				if err := one.Err(); err != nil {
					t.Errorf("the first session: %v", err)
				}
			})
		})
	}
}
