//go:build linux

package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/contrib/recipes"
)

// newSession opens a session with a cell of its own, in this process. In a program it is client.New(ctx, client.Config{Cell: "foo"}).
func newSession() (context.Context, *client.Client, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cell, err := celltest.New(1)
	if err != nil {
		panic(err)
	}
	c, err := client.New(ctx, client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
	if err != nil {
		panic(err)
	}
	return ctx, c, func() {
		_ = c.Close(ctx)
		cell.Close()
		cancel()
	}
}

// A worker takes items until there is none within a second. An item stays in the queue until a worker says that it is done.
func ExampleQueue() {
	ctx, c, done := newSession()
	defer done()
	q := recipes.NewQueue(c, "/ls/local/mails", recipes.QueueOptions{LockDelay: api.DefaultLockDelay, Attempts: 5})
	for _, to := range []string{"to: ann", "to: bob"} {
		if _, err := q.Put(ctx, []byte(to), recipes.Priority(1)); err != nil {
			fmt.Println(err)
			return
		}
	}
	send := func(_ context.Context, data []byte, _ string) bool { fmt.Println(string(data)); return true }
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		item, err := q.Take(ctx)
		if err != nil {
			fmt.Println(api.CodeOf(err))
			return
		}
		if !send(item.Context(), item.Data, item.Sequencer().String()) {
			_ = item.Fail(ctx, "the server did not take it", time.Minute) // after the fifth time it is a dead letter
			continue
		}
		if err := item.Done(ctx); err != nil {
			fmt.Println("it may be sent again:", err)
		}
	}
	// Output:
	// to: ann
	// to: bob
	// DeadlineExceeded
}

// Workers wait while the one that changes the schema is at it, and go on if it dies.
func ExampleBarrier() {
	ctx, c, done := newSession()
	defer done()
	gate := recipes.NewBarrier(c, "/ls/local/changing", recipes.BarrierOptions{Ephemeral: true})
	if err := gate.Raise(ctx); err != nil { // the one
		fmt.Println(err)
		return
	}
	if err := gate.Lift(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(gate.Wait(ctx)) // the others, before each piece of work
	// Output: <nil>
}

// A server is announced only while it can work.
func ExampleHealthy() {
	ctx, c, done := newSession()
	defer done()
	var full atomic.Bool // the disk, for example
	check := recipes.Check{Every: 10 * time.Millisecond, Failures: 3, Func: func(context.Context) error {
		if full.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}}
	h, err := recipes.Healthy(ctx, c, check, func(ctx context.Context) (*recipe.Publication, error) {
		return recipe.Publish(ctx, c, "/ls/local/svc", recipe.Endpoint{Address: "web1:80"})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := 0
	for list, err := range recipe.WatchEndpoints(ctx, c, "/ls/local/svc") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("servers:", len(list))
		full.Store(len(list) > 0)
		if changes++; changes == 3 {
			break
		}
	}
	if err := h.Withdraw(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// servers: 1
	// servers: 0
	// servers: 1
}

// Eight processes compute in steps: none begins a step before all have ended the one before.
func ExampleDoubleBarrier() {
	ctx, c, done := newSession()
	defer done()
	b := recipes.NewDoubleBarrier(c, "/ls/local/simulation", 1) // in a program more
	for range 2 {
		p, err := b.Enter(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("computing step", p.Round(), context.Cause(p.Context()))
		if err := p.Leave(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// computing step 1 <nil>
	// computing step 2 <nil>
}

// A function that needs a lock may be called by one that has it.
func ExampleLocked() {
	ctx, c, done := newSession()
	defer done()
	const path = "/ls/local/accounts"
	add := func(ctx context.Context, account string) error {
		return recipes.Locked(ctx, c, path, recipes.LockedOptions{}, func(context.Context) error {
			fmt.Println("add", account)
			return nil
		})
	}
	err := recipes.Locked(ctx, c, path, recipes.LockedOptions{}, func(ctx context.Context) error {
		if err := add(ctx, "ann"); err != nil { // ctx has the lock
			return err
		}
		return add(ctx, "zoe")
	})
	fmt.Println(err, add(ctx, "bob"))
	// Output:
	// add ann
	// add zoe
	// add bob
	// <nil> <nil>
}
