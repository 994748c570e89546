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

// Three sessions wait for each other, before and after a fail-over; the last request fails at
// once, and says who waits for whom; the others get their locks when its session gives up its own.
func TestDeadlockIsTold(t *testing.T) {
	for _, failOver := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail-over %t", failOver), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { deadlock(t, failOver) })
		})
	}
}

func deadlock(t *testing.T, failOver bool) {
	const n = 3
	cell := celltest.Start(t, 3)
	var sessions []*client.Client
	var handles [n][n]*client.Handle // of session and lock
	var held [n]*client.Lock
	for i := range n {
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, c)
		for j := range n {
			handles[i][j], err = c.Open(t.Context(), fmt.Sprintf("/ls/local/l%d", j), client.OpenOptions{Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
		}
		if held[i], err = handles[i][i].Acquire(t.Context(), api.Exclusive, client.DetectDeadlock("")); err != nil {
			t.Fatal(err)
		}
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
		if err := held[i].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-answers
		if next.i != i-1 || next.err != nil {
			t.Fatalf("session %d: %v", next.i, next.err)
		}
		if err := next.lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range sessions {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An owner that is too long, or no text, is refused before anything is sent.
func TestDeclaredOwnerIsChecked(t *testing.T) {
	ctx, c, done := newSession()
	defer done()
	h, err := c.Open(ctx, "/ls/local/lock", client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{strings.Repeat("x", api.MaxOwner+1), "\xff"} {
		if _, err := h.Acquire(ctx, api.Exclusive, client.DetectDeadlock(owner)); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("Acquire: %v", err)
		}
		if _, err := h.TryAcquire(ctx, api.Exclusive, client.DetectDeadlock(owner)); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("TryAcquire: %v", err)
		}
	}
	l, err := h.Acquire(ctx, api.Exclusive, client.DetectDeadlock(strings.Repeat("x", api.MaxOwner)))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := c.Cell().Locks(ctx, "/ls/local")
	if err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 || len(locks[0].Holders[0].Owner) != api.MaxOwner {
		t.Errorf("%+v, %v", locks, err)
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
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
