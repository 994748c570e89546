//go:build linux

package recipe

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// What a recipe holds is given back at once, also by those whose context has ended, as
// that of a program that got a signal. The session stays open, and frees nothing.
func TestGivenBackWithEndedContext(t *testing.T) {
	t.Parallel()
	const delay = api.DefaultLockDelay
	recipetest.GivesBack(t, map[string]recipetest.Take{
		"permit": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := NewSemaphore(c, "/ls/local/semaphore", 1).Acquire(w.Ctx, SemaphoreOptions{LockDelay: delay})
			return p.Release, err
		},
		"write lock": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := NewRWLock(c, "/ls/local/file", RWLockOptions{LockDelay: delay}).Lock(w.Ctx)
			return l.Release, err
		},
		"locks": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			l, err := AcquireAll(w.Ctx, c, []string{"/ls/local/a", "/ls/local/b"}, AllOptions{LockDelay: delay})
			return l.Release, err
		},
		"presence": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Announce(w.Ctx, c, "/ls/local/up", "name", nil)
			return p.Withdraw, err
		},
		"publication": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Publish(w.Ctx, c, "/ls/local/service", Endpoint{Address: "127.0.0.1:9999"})
			return p.Withdraw, err
		},
		"primary": func(w *recipetest.World, c *client.Client) (func(context.Context) error, error) {
			p, err := Campaign(w.Ctx, c, "/ls/local/primary", CampaignOptions{Name: "name", LockDelay: delay})
			return p.Resign, err
		},
	})
}
