//go:build linux

package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

const lockedPath = "/ls/local/locked"

// A function under a lock may call one that takes it; another session waits for both.
func TestLocked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		var o LockedOptions
		var other time.Time
		var waiting sync.WaitGroup
		var last time.Time
		err := Locked(w.Ctx, one, lockedPath, o, func(ctx context.Context) error {
			waiting.Go(func() {
				if err := Locked(w.Ctx, two, lockedPath, o, func(context.Context) error { other = time.Now(); return nil }); err != nil {
					t.Error(err)
				}
			})
			seq, ok := sequencer.FromContext(ctx)
			for _, path := range []string{lockedPath, lockedPath} {
				err := Locked(ctx, one, path, o, func(ctx context.Context) error {
					if again, both := sequencer.FromContext(ctx); !ok || !both || again != seq {
						t.Errorf("the sequencers are %v and %v", seq, again)
					}
					pass(time.Second)
					return nil
				})
				if err != nil {
					return err
				}
			}
			if err := Locked(ctx, one, "/ls/elsewhere/locked", o, func(context.Context) error { return nil }); !errors.Is(err, api.WrongCell) {
				t.Errorf("another cell: %v", err)
			}
			w.Succeed()
			if _, err := two.Acquire(ctx, lockedPath, client.Try()); !errors.Is(err, api.LockHeld) {
				t.Errorf("another session: %v", err)
			}
			sick := errors.New("sick")
			if err := Locked(ctx, one, lockedPath, o, func(context.Context) error { return sick }); !errors.Is(err, sick) {
				t.Errorf("the error of the function: %v", err)
			}
			last = time.Now()
			return nil
		})
		w.OK(err)
		waiting.Wait()
		if other.Before(last) {
			t.Errorf("another had the lock %v before it was released", last.Sub(other))
		}
	})
}

// The lock is the same by another name of the cell.
func TestLockedByTwoNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Cell = "foo" })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := client.New(ctx, client.Config{Cell: "foo", Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		ran := 0
		err = Locked(ctx, c, "/ls/local/a", LockedOptions{}, func(ctx context.Context) error {
			return Locked(ctx, c, "/ls/foo/a", LockedOptions{}, func(context.Context) error { ran++; return nil })
		})
		if err != nil || ran != 1 {
			t.Errorf("%v; it ran %d times", err, ran)
		}
	})
}

// The lock is kept until functions that were nested have returned, whose context has ended; later ones do not run.
func TestLockedOutlived(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("h1"), w.Client("h2")
		var o LockedOptions
		var nested sync.WaitGroup
		began := make(chan struct{})
		var under context.Context
		var stopped time.Time
		err := Locked(w.Ctx, one, lockedPath, o, func(ctx context.Context) error {
			under = ctx
			nested.Go(func() {
				err := Locked(ctx, one, lockedPath, o, func(ctx context.Context) error {
					close(began)
					<-ctx.Done()
					pass(5 * time.Second)
					if _, err := two.Acquire(w.Ctx, lockedPath, client.Try()); !errors.Is(err, api.LockHeld) {
						t.Errorf("another session: %v", err)
					}
					stopped = time.Now()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			<-began
			return nil
		})
		w.OK(err)
		nested.Wait()
		if stopped.IsZero() {
			t.Error("it returned before the function that was nested")
		}
		if err := Locked(under, one, lockedPath, o, func(context.Context) error { t.Error("it runs"); return nil }); !errors.Is(err, api.NotHeld) {
			t.Errorf("under a lock that was released: %v", err)
		}
		l, err := two.Acquire(w.Ctx, lockedPath, client.Try())
		w.OK(err)
		w.OK(l.Release(w.Ctx))
	})
}

// A lock that is lost ends the contexts of all, begins no other function, and is an error.
func TestLockedLost(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, operator := w.Client("h1"), w.Client("operator")
		var o LockedOptions
		err := Locked(w.Ctx, one, lockedPath, o, func(outer context.Context) error {
			err := Locked(outer, one, lockedPath, o, func(ctx context.Context) error {
				w.OK(operator.BreakLock(w.Ctx, lockedPath, "a test", false))
				<-ctx.Done()
				return nil
			})
			if !errors.Is(err, api.LockLost) {
				t.Errorf("the nested one: %v", err)
			}
			if err := Locked(outer, one, lockedPath, o, func(context.Context) error { t.Error("it runs"); return nil }); !errors.Is(err, api.LockLost) {
				t.Errorf("under a lock that was lost: %v", err)
			}
			return nil
		})
		if !errors.Is(err, api.LockLost) {
			t.Errorf("the first one: %v", err)
		}
		func() {
			defer func() { t.Log(fmt.Sprint("recovered: ", recover())) }()
			_ = Locked(w.Ctx, one, lockedPath, o, func(context.Context) error { panic("a test") })
		}()
		ctx, cancel := w.Brief(time.Second)
		defer cancel()
		w.OK(Locked(ctx, operator, lockedPath, o, func(context.Context) error { return nil })) // it was released
		if err := Locked(ctx, one, "locked", o, nil); !errors.Is(err, api.InvalidPath) {
			t.Errorf("a bad path: %v", err)
		}
	})
}
