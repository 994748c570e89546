//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// A lock that is free is had at once, and one that becomes free soon, although 192
// requests of the session wait for another, as many as may.
func TestFreeLockInACrowd(t *testing.T) {
	celltest.Run(t, 1, func(t *testing.T, cell *celltest.Cell) {
		open := func(c *client.Client, path string) *client.Handle {
			return opened(t, c, path, client.OpenOptions{Write: true, Create: client.File})
		}
		holder, c := cell.Client("holder"), cell.Client("crowd")
		acquire := func(h *client.Handle, most time.Duration) *client.Lock {
			began := time.Now()
			l, err := h.Acquire(bounded(t, 10*time.Minute), api.Exclusive)
			if d := time.Since(began); err != nil || d > most {
				t.Errorf("%s: %v after %v, want it within %v", h.Path(), err, d, most)
			}
			return l
		}
		acquire(open(holder, "/ls/local/busy"), time.Second)
		soon := acquire(open(holder, "/ls/local/soon"), time.Second)
		waiting, giveUp := context.WithCancel(t.Context())
		const waits = 192
		done := make(chan struct{}, waits)
		for range waits {
			h := open(c, "/ls/local/busy")
			go func() {
				_, _ = h.Acquire(waiting, api.Exclusive)
				done <- struct{}{}
			}()
		}
		time.Sleep(time.Second)
		acquire(open(c, "/ls/local/free"), time.Second)
		released := time.AfterFunc(time.Minute, func() { _ = soon.Release(t.Context()) })
		acquire(open(c, "/ls/local/soon"), time.Minute+api.DefaultLease)
		released.Stop()
		giveUp()
		for range waits {
			<-done
		}
	})
}

// A client that keeps a lock until another asks for it hears of one that has begun to wait
// at a new master before the holder was heard there.
func TestConflictDuringFailOverIsTold(t *testing.T) {
	celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) {
		open := func(host string) *client.Handle {
			c := cell.Client(host, func(cfg *client.Config) { cfg.Lease = 30 * time.Second })
			return opened(t, c, lockPath, client.OpenOptions{
				Read: true, Write: true, Create: client.File, Events: []api.EventKind{api.EventConflictingLock},
			})
		}
		holder, waiter := open("holder"), open("waiter")
		l := acquired(t, holder)
		cell.Cut("holder")
		cell.FailOver()
		got := make(chan error)
		go func() {
			next, err := waiter.Acquire(t.Context(), api.Exclusive)
			if err == nil {
				err = next.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(5 * time.Second)
		cell.Heal("holder")
		within := bounded(t, time.Minute)
		var told []api.EventKind
		for e, err := range holder.Events(within) {
			if err != nil {
				t.Fatalf("%v, after %v", err, told)
			}
			if told = append(told, e.Kind); e.Kind == api.EventConflictingLock {
				if len(told) != 2 || told[0] != api.EventMasterFailedOver || e.Generation != api.Generation(l.Token()) {
					t.Errorf("told %v, of generation %d; the lock is of %d", told, e.Generation, l.Token())
				}
				break
			}
		}
		noError(t, l.Release(t.Context()))
		noError(t, <-got)
	})
}

// conflict returns the next event of a handle about a conflicting request; nil if none comes within some seconds.
func conflict(t *testing.T, h *client.Handle) *api.Event {
	t.Helper()
	within := bounded(t, 10*time.Second)
	for e, err := range h.Events(within) {
		switch {
		case errors.Is(err, api.DeadlineExceeded), errors.Is(err, api.HandleClosed):
			return nil
		case err != nil:
			t.Fatal(err)
		case e.Kind == api.EventConflictingLock:
			return &e
		}
	}
	return nil
}

// A request that is quiet is told to no program, but it has a lock given back that is kept and not used; and so has
// a Delete. Other requests are told with their reasons.
func TestQuietRequestOfAKeptLock(t *testing.T) {
	withCachers(t, 1, func(t *testing.T, c *cachers) {
		h := opened(t, c.one, "/ls/local/lock", client.OpenOptions{
			Write: true, Create: client.File, CacheLock: true, Events: []api.EventKind{api.EventConflictingLock},
		})
		for name, acquire := range map[string]func(context.Context, api.LockMode, ...client.LockOption) (*client.Lock, error){
			"TryAcquire": c.h2.TryAcquire, "Acquire": c.h2.Acquire,
		} {
			ask := func(options ...client.LockOption) error {
				l, err := acquire(bounded(t, 3*time.Second), api.Exclusive, append(options, client.Reason("a backup"))...)
				if err == nil {
					c.release(l)
				}
				return err
			}
			c.release(c.acquire(h))
			if err := ask(client.Quiet()); err != nil {
				t.Errorf("%s of a lock that is kept: %v", name, err)
			}
			l := c.acquire(h)
			if err := ask(client.Quiet()); err == nil {
				t.Errorf("%s of a lock that is used succeeds", name)
			}
			if e := conflict(t, h); e != nil {
				t.Errorf("a quiet %s was told: %+v", name, e)
			}
			if err := ask(); err == nil {
				t.Errorf("%s of a lock that is used succeeds", name)
			}
			if e := conflict(t, h); e == nil || e.Explanation != "a backup" || e.Generation != api.Generation(l.Token()) {
				t.Errorf("%s was told: %+v", name, e)
			}
			c.release(l)
			if e := conflict(t, h); e != nil {
				t.Errorf("%s was told again: %+v", name, e)
			}
		}
		c.release(c.acquire(h))
		wants(t, "Delete of a node whose lock is kept", c.two.Delete(t.Context(), "/ls/local/lock"), nil)
		if e := conflict(t, h); e != nil {
			t.Errorf("a Delete was told: %+v", e)
		}
	})
}

// A request stays quiet, and one that is not stays one, at a master that knows neither of them, nor the holder.
func TestQuietRequestDuringFailOver(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		withCachers(t, 3, func(t *testing.T, c *cachers) {
			h := opened(t, c.one, "/ls/local/other", client.OpenOptions{
				Write: true, Create: client.File, Events: []api.EventKind{api.EventConflictingLock},
			})
			l := c.acquire(h)
			waiting := opened(t, c.two, "/ls/local/other", client.OpenOptions{Write: true})
			options := []client.LockOption{client.Reason("a backup")}
			if quiet {
				options = append(options, client.Quiet())
			}
			got := make(chan *client.Lock)
			go func() { got <- c.acquire(waiting, options...) }()
			time.Sleep(time.Second)
			if told := conflict(t, h) != nil; told == quiet {
				t.Errorf("quiet %t: told %t", quiet, told)
			}
			c.cell.FailOver()
			time.Sleep(20 * time.Second)
			if e := conflict(t, h); (e != nil) == quiet {
				t.Errorf("quiet %t: told after the fail-over: %+v", quiet, e)
			}
			c.release(l)
			c.release(<-got)
		})
	}
}

// Three sessions wait for each other, before and after a fail-over; the last request fails at
// once, and says who waits for whom; the others get their locks when its session gives up its own.
func TestDeadlockIsTold(t *testing.T) {
	for _, failOver := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail-over %t", failOver), func(t *testing.T) {
			celltest.Run(t, 3, func(t *testing.T, cell *celltest.Cell) { deadlock(t, cell, failOver) })
		})
	}
}

func deadlock(t *testing.T, cell *celltest.Cell, failOver bool) {
	const n = 3
	var sessions []*client.Client
	var handles [n][n]*client.Handle // of session and lock
	var held [n]*client.Lock
	for i := range n {
		c := cell.Client("host")
		sessions = append(sessions, c)
		for j := range n {
			handles[i][j] = opened(t, c, fmt.Sprintf("/ls/local/l%d", j), client.OpenOptions{Write: true, Create: client.File})
		}
		held[i] = ok(handles[i][i].Acquire(t.Context(), api.Exclusive, client.DetectDeadlock("")))(t)
	}
	type answer struct {
		i    int
		lock *client.Lock
		err  error
	}
	answers := make(chan answer, n)
	ask := func(ctx context.Context, i int) {
		l, err := handles[i][(i+1)%n].Acquire(ctx, api.Exclusive, client.DetectDeadlock(""))
		answers <- answer{i, l, err}
	}
	for i := range n - 1 {
		go ask(t.Context(), i)
		synctest.Wait()
	}
	time.Sleep(time.Second)
	if failOver {
		cell.FailOver()
		time.Sleep(10 * time.Second)
	}
	began := time.Now()
	ask(t.Context(), n-1)
	got := <-answers
	took := time.Since(began)
	var e *api.Error
	if got.i != n-1 || !errors.As(got.err, &e) || e.Code != api.Deadlock || !e.Final {
		t.Fatalf("session %d: %v", got.i, got.err)
	}
	if most := 50 * time.Millisecond; took > most && !failOver {
		t.Errorf("it took %v, want at most %v: it is told when the cycle closes, and not by the clock", took, most)
	}
	if len(e.Cycle) != n {
		t.Fatalf("the cycle is %+v", e.Cycle)
	}
	for k, step := range e.Cycle {
		by, to := (n-1+k)%n, (n+k)%n
		if step.Session != sessions[by].Session() || step.For != sessions[to].Session() || step.Path != fmt.Sprintf("/ls/local/l%d", to) {
			t.Errorf("step %d is %+v", k, step)
		}
	}
	if text := got.err.Error(); !strings.Contains(text, fmt.Sprintf("%v waits for /ls/local/l0 and %v", sessions[n-1].Session(), sessions[0].Session())) {
		t.Errorf("the error is %q", text)
	}
	for i := n - 1; i > 0; i-- { // each gives up its lock, and so the one before has all it wants
		must(t, held[i].Release(t.Context()))
		next := <-answers
		if next.i != i-1 || next.err != nil {
			t.Fatalf("session %d: %v", next.i, next.err)
		}
		noError(t, next.lock.Release(t.Context()))
	}
}

// An owner that is too long, or no text, is refused before anything is sent.
func TestDeclaredOwnerIsChecked(t *testing.T) {
	ctx, c, done := newSession()
	defer done()
	h := ok(c.Open(ctx, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File}))(t)
	for _, owner := range []string{strings.Repeat("x", api.MaxOwner+1), "\xff"} {
		wants(t, "Acquire", second(h.Acquire(ctx, api.Exclusive, client.DetectDeadlock(owner))), api.InvalidArgument)
		wants(t, "TryAcquire", second(h.TryAcquire(ctx, api.Exclusive, client.DetectDeadlock(owner))), api.InvalidArgument)
	}
	l := ok(h.Acquire(ctx, api.Exclusive, client.DetectDeadlock(strings.Repeat("x", api.MaxOwner))))(t)
	locks, err := c.Cell().Locks(ctx, "/ls/local")
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 || len(locks[0].Holders[0].Owner) != api.MaxOwner {
		t.Errorf("%+v, %v", locks, err)
	}
	noError(t, l.Release(ctx))
}

// A program that works on several things at once, each with several locks, names an owner for each.
func ExampleDetectDeadlock() {
	ctx, c, done := newSession()
	defer done()
	lock := func(path, owner string) (*client.Lock, error) {
		h, err := c.Open(ctx, path, client.OpenOptions{Write: true, Create: client.File})
		if err != nil {
			return nil, err
		}
		return h.Acquire(ctx, api.Exclusive, client.DetectDeadlock(owner))
	}

	ann, err := lock("/ls/local/accounts-ann", "transfer 1")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = lock("/ls/local/accounts-zoe", "transfer 2"); err != nil {
		fmt.Println(err)
		return
	}
	waits := make(chan error)
	go func() {
		_, err := lock("/ls/local/accounts-ann", "transfer 2") // waits for transfer 1
		waits <- err
	}()
	for waiting := false; !waiting; {
		locks, err := c.Cell().Locks(ctx, ann.Path())
		if err != nil {
			fmt.Println(err)
			return
		}
		waiting = len(locks) > 0 && len(locks[0].Waiters) > 0
	}

	_, err = lock("/ls/local/accounts-zoe", "transfer 1")
	var deadlock *api.Error
	if errors.As(err, &deadlock) && deadlock.Code == api.Deadlock {
		for _, step := range deadlock.Cycle {
			fmt.Println(step.Owner, "waits for", step.Path)
		}
	}
	if err := ann.Release(ctx); err != nil { // let the other go on, and begin again later
		fmt.Println(err)
	}
	fmt.Println("transfer 2 goes on:", <-waits)
	// Output:
	// transfer 1 waits for /ls/local/accounts-zoe
	// transfer 2 waits for /ls/local/accounts-ann
	// transfer 2 goes on: <nil>
}
