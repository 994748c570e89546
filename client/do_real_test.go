//go:build linux

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// handlesOf returns how many handles a session has open at the cell.
func handlesOf(ctx context.Context, t *testing.T, c *client.Client) int {
	t.Helper()
	info, found, err := c.Cell().FindSession(ctx, c.Session())
	if err != nil || !found {
		t.Fatalf("session %v: %v, %v", c.Session(), found, err)
	}
	return info.Handles
}

// Acquire opens and creates the file; Release, and a failure, leave no handle open.
func TestClientAcquire(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		one, two := cell.Client("h1"), cell.Client("h2")
		l := ok(one.Acquire(ctx, lockPath, client.Reason("a test")))(t)
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var held *api.Error
		if _, err := two.Acquire(brief, lockPath); !errors.Is(err, api.DeadlineExceeded) || !errors.As(err, &held) || len(held.Holders) != 1 || held.Holders[0].Reason != "a test" {
			t.Errorf("of a lock that another holds: %v", err)
		}
		if n := handlesOf(ctx, t, two); n != 0 || two.Stats().Handles != 0 {
			t.Errorf("after a failure %d handles are open at the cell, %d here", n, two.Stats().Handles)
		}
		for range 2 { // the second does nothing
			wants(t, "Release", l.Release(ctx), nil)
		}
		if n := handlesOf(ctx, t, one); n != 0 || one.Stats().Handles != 0 {
			t.Errorf("after Release %d handles are open at the cell, %d here", n, one.Stats().Handles)
		}
		wants(t, "in a directory that is absent", second(two.Acquire(ctx, "/ls/local/absent/lock")), api.NotFound)
		first := ok(one.Acquire(ctx, lockPath, client.Shared()))(t)
		second, err := two.Acquire(ctx, lockPath, client.Shared())
		if err != nil || first.Mode() != api.Shared || second.Token() != first.Token() {
			t.Errorf("shared by two: %v", err)
		}
		h := ok(one.Open(ctx, lockPath, client.OpenOptions{Write: true}))(t)
		for name, option := range map[string]client.LockOption{"Shared": client.Shared(), "LockDelay": client.LockDelay(0), "Try": client.Try(), "AtLeast": client.AtLeast(1)} {
			if _, err := h.TryAcquire(ctx, api.Exclusive, option); !errors.Is(err, api.InvalidArgument) {
				t.Errorf("%s for a handle: %v", name, err)
			}
		}
	})
}

// The lock-delay is the default one, unless it is said.
func TestClientAcquireLockDelay(t *testing.T) {
	for want, options := range map[time.Duration][]client.LockOption{api.DefaultLockDelay: nil, 0: {client.LockDelay(0)}, time.Minute: {client.LockDelay(time.Minute)}} {
		inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
			one, two := cell.Client("h1"), cell.Client("h2")
			must(t, second(one.Acquire(ctx, lockPath, options...)))
			cell.Cut("h1")
			began := time.Now()
			must(t, second(two.Acquire(ctx, lockPath)))
			if took := time.Since(began); took < want+5*time.Second || took > want+api.DefaultLease+5*time.Second {
				t.Errorf("the next has it after %v; the lock-delay is to be %v", took, want)
			}
		})
	}
}

// A file that is deleted while its lock is waited for is created again, and the wait ends.
func TestClientAcquireOfDeletedFile(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		one, two := cell.Client("h1"), cell.Client("h2")
		h := ok(one.Open(ctx, lockPath, client.OpenOptions{Write: true, Create: client.File}))(t)
		must(t, second(h.Acquire(ctx, api.Exclusive)))
		got := make(chan error, 1)
		go func() {
			l, err := two.Acquire(ctx, lockPath)
			if err == nil {
				err = l.Release(ctx)
			}
			got <- err
		}()
		time.Sleep(time.Second)
		must(t, h.Delete(ctx))
		noError(t, <-got)
	})
}

// doing is a cell with a client that calls Do, and an operator who looks at the lock and takes it away.
type doing struct {
	t           *testing.T
	c, operator *client.Client
}

// errOwn is the error of a function that Do calls.
var errOwn = errors.New("the function's own error")

// is fails the test unless all of these are in an error; without any, unless there is none.
func (d *doing) is(err error, want ...error) {
	d.t.Helper()
	for _, one := range want {
		if !errors.Is(err, one) {
			d.t.Errorf("%v; want %v in it", err, one)
		}
	}
	if len(want) == 0 && err != nil {
		d.t.Errorf("%v; want none", err)
	}
}

// free fails the test unless nobody holds the lock.
func (d *doing) free(ctx context.Context) {
	d.t.Helper()
	x, err := d.operator.Cell().Explain(ctx, lockPath)
	if err != nil || len(x.Lock.Holders) != 0 {
		d.t.Errorf("%+v, %v; want a lock that is free", x.Lock, err)
	}
}

// lose has the lock taken away from the work whose context is held. The call that takes it has a context of its own, because
// held may end before that call is answered.
func (d *doing) lose(ctx, held context.Context) {
	d.t.Helper()
	if err := d.operator.BreakLock(ctx, lockPath, "a test", false); err != nil {
		d.t.Error(err)
	}
	<-held.Done()
}

// Do holds the lock while the function runs, returns its error, and releases the lock whatever comes.
func TestDo(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		c := cell.Client("h1")
		d := &doing{t, c, cell.Client("operator")}
		d.is(c.Do(ctx, lockPath, func(ctx context.Context, l *client.Lock) error {
			s, ok := sequencer.FromContext(ctx)
			if x, err := c.Cell().Explain(ctx, lockPath); err != nil || len(x.Lock.Holders) != 1 || !ok || s != l.Sequencer() {
				t.Errorf("inside: %+v, %v, sequencer %v", x.Lock, err, ok)
			}
			return nil
		}))
		d.free(ctx)
		if err := c.Do(ctx, lockPath, func(context.Context, *client.Lock) error { return errOwn }); err != errOwn { //nolint:errorlint // it is to be that one, not one around it
			t.Errorf("%v; want the function's error as it is", err)
		}
		d.free(ctx)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not go on")
				}
			}()
			_ = c.Do(ctx, lockPath, func(context.Context, *client.Lock) error { panic("a test") })
		}()
		d.free(ctx)

		// The function releases the lock itself: that is no loss.
		d.is(c.Do(ctx, lockPath, func(ctx context.Context, l *client.Lock) error { return l.Release(ctx) }))

		// The lock is not had: the function is not called.
		d.is(d.operator.Do(ctx, lockPath, func(ctx context.Context, _ *client.Lock) error {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			d.is(c.Do(brief, lockPath, func(context.Context, *client.Lock) error { t.Error("the function was called"); return nil }), api.DeadlineExceeded)
			return nil
		}))

		// The caller's context ends: so does the function's, and the lock is released all the same.
		brief, cancel := context.WithCancel(ctx)
		d.is(c.Do(brief, lockPath, func(ctx context.Context, _ *client.Lock) error {
			cancel()
			<-ctx.Done()
			return nil
		}))
		d.free(ctx)
	})
}

// If the lock is lost while the function runs, the code is that of the loss, whatever the function returns.
func TestDoTellsOfTheLoss(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		c := cell.Client("h1")
		d := &doing{t, c, cell.Client("operator")}
		for _, returns := range []func(ctx context.Context) error{
			func(context.Context) error { return nil },
			func(context.Context) error { return errOwn },
			context.Cause,
			func(ctx context.Context) error { // a call that was ended by the loss
				_, err := c.Acquire(ctx, lockPath+"2")
				return err
			},
		} {
			var returned error
			err := c.Do(ctx, lockPath, func(held context.Context, _ *client.Lock) error {
				d.lose(ctx, held)
				d.is(context.Cause(held), client.LockTaken)
				returned = returns(held)
				return returned
			})
			d.is(err, api.LockLost, client.LockTaken)
			if returned != nil {
				d.is(err, returned)
			}
			if api.CodeOf(err) != api.LockLost {
				t.Errorf("the code of %v is %v", err, api.CodeOf(err))
			}
			d.free(ctx)
		}
		d.is(c.Do(ctx, lockPath, func(ctx context.Context, _ *client.Lock) error {
			cell.Expire(c.Session())
			<-ctx.Done()
			return errOwn
		}), api.SessionExpired, errOwn)
		d.free(ctx)

		// The release is not answered.
		c = cell.Client("h2")
		brief, cancel := context.WithTimeout(ctx, api.DefaultLockDelay+5*time.Second) // there is a lock-delay of the one before
		defer cancel()
		d.is(c.Do(brief, lockPath, func(context.Context, *client.Lock) error { cell.Cut("h2"); return errOwn }), api.Uncertain, errOwn)
	})
}

// A job that several hosts begin at about the same time is done by one of them, also if it takes no time.
func TestDoAtLeast(t *testing.T) {
	inCell(t, 1, func(ctx context.Context, cell *celltest.Cell) {
		one, two := cell.Client("h1"), cell.Client("h2")
		job := func(context.Context, *client.Lock) error { return errOwn }
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- one.Do(ctx, lockPath, job, client.Try(), client.AtLeast(time.Minute)) }()
		time.Sleep(59 * time.Second) // the clock of the other is behind
		if err := two.Do(ctx, lockPath, job, client.Try(), client.AtLeast(time.Minute)); !errors.Is(err, api.LockHeld) || time.Since(began) > time.Minute {
			t.Errorf("the other: %v after %v", err, time.Since(began))
		}
		if err := <-done; !errors.Is(err, errOwn) || time.Since(began) < time.Minute || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, lose := range []func(cancel func()){
			func(cancel func()) { cancel() },
			func(func()) {
				noError(t, two.BreakLock(ctx, lockPath, "a test", false))
			},
		} {
			began = time.Now()
			brief, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(time.Second, func() { lose(cancel) })
			if err := one.Do(brief, lockPath, job, client.AtLeast(time.Minute)); !errors.Is(err, errOwn) || time.Since(began) > 2*time.Second {
				t.Errorf("given up, or lost: %v after %v", err, time.Since(began))
			}
			timer.Stop()
			cancel()
		}
		for _, err := range []error{
			one.Do(ctx, lockPath, job, client.AtLeast(-1)),
			func() error { _, err := one.Acquire(ctx, lockPath, client.AtLeast(1)); return err }(),
		} {
			if !errors.Is(err, api.InvalidArgument) {
				t.Errorf("AtLeast where it is not for: %v", err)
			}
		}
	})
}
