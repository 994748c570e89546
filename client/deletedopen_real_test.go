//go:build linux

package client_test

import (
	"context"
	"path"
	"sync/atomic"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// The answer to an Open is lost, and the file that it has opened is deleted before the next attempt: nothing is left of it, so
// it is not uncertain. The file is created, if that is asked for, or is not there; and who wants its lock has it.
func TestDeletedAfterALostAnswer(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell, dial func(string, ...func(*client.Config)) *client.Client) {
		two := dial("two")
		var losing atomic.Bool
		one := dial("one", func(cfg *client.Config) {
			cfg.Dialer = cell.Lossy("one", func(method string) bool {
				if path.Base(method) != "Open" || !losing.CompareAndSwap(true, false) {
					return false
				}
				wants(t, "Delete", two.Delete(ctx, lockPath), api.OK)
				return true
			})
		})
		locked := func(l *client.Lock, err error) error {
			if err == nil {
				err = l.Release(ctx)
			}
			return err
		}
		opened := func(h *client.Handle, err error) error {
			if err == nil {
				err = h.Close(ctx)
			}
			return err
		}
		called := 0
		for name, test := range map[string]struct {
			call func() error
			want api.Code
		}{
			"Acquire":     {func() error { return locked(one.Acquire(ctx, lockPath)) }, api.OK},
			"Acquire Try": {func() error { return locked(one.Acquire(ctx, lockPath, client.Try())) }, api.OK},
			"Do": {func() error {
				return one.Do(ctx, lockPath, func(context.Context, *client.Lock) error { called++; return nil })
			}, api.OK},
			"Open, and create": {func() error {
				return opened(one.Open(ctx, lockPath, client.OpenOptions{Write: true, Create: client.File, LockDelay: 1}))
			}, api.OK},
			"Open": {func() error {
				return opened(one.Open(ctx, lockPath, client.OpenOptions{Write: true, LockDelay: 1}))
			}, api.NotFound},
		} {
			if _, err := two.Put(ctx, lockPath, nil); err != nil {
				t.Fatal(err)
			}
			losing.Store(true)
			wants(t, name, test.call(), test.want)
			if losing.Load() {
				t.Errorf("%s: no answer was lost", name)
			}
		}
		if called != 1 {
			t.Errorf("the function of Do was called %d times", called)
		}
	})
}
