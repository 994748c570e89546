package recipe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// cellOf returns what is known of the cell foo; the test that runs the examples has one of its own.
var cellOf = func() client.Config { return client.Config{Cell: "foo"} }

// connect opens a session with the cell foo.
func connect() (context.Context, *client.Client, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c, err := client.New(ctx, cellOf())
	if err != nil {
		cancel()
		fmt.Println(err)
		return ctx, nil, func() {}
	}
	return ctx, c, func() {
		_ = c.Close(ctx)
		cancel()
	}
}

// At most three of all processes convert films at a time; each has a scratch disk of its own.
func ExampleSemaphore() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	sem := recipe.NewSemaphore(c, "/ls/foo/films/converters", 3)
	p, err := sem.Acquire(ctx, recipe.SemaphoreOptions{LockDelay: api.DefaultLockDelay, Reason: "film 17"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Release(ctx)
	convert(p.Context(), fmt.Sprintf("/scratch/%d", p.Slot()))
}

func convert(context.Context, string) {}

// Eight processes compute in steps: none begins a step before all have ended the one before.
func ExampleDoubleBarrier() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	b := recipe.NewDoubleBarrier(c, "/ls/foo/simulation", 8)
	for range 3 {
		p, err := b.Enter(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		compute(p.Context(), p.Round())
		if err := p.Leave(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
}

func compute(context.Context, uint64) {}

// Many read an index; now and then one writes it anew.
func ExampleRWLock() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	lock := recipe.NewRWLock(c, "/ls/foo/index", recipe.RWLockOptions{LockDelay: api.DefaultLockDelay})
	reading, err := lock.RLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	convert(reading.Context(), "look something up")
	if err := reading.Release(ctx); err != nil {
		fmt.Println("what was read may be of two versions:", err)
	}
	writing, err := lock.Lock(ctx, client.Reason("new index"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer writing.Release(ctx)
	convert(writing.Context(), writing.Lock().Sequencer().String())
}

// Two accounts are held while money goes from one to the other.
func ExampleAcquireAll() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	accounts := []string{"/ls/foo/accounts/zoe", "/ls/foo/accounts/ann"}
	locks, err := recipe.AcquireAll(ctx, c, accounts, recipe.AllOptions{LockDelay: api.DefaultLockDelay, Shared: []string{"/ls/foo/rates"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, seq := range locks.Sequencers() {
		convert(locks.Context(), seq.String())
	}
	if err := locks.Release(ctx); err != nil {
		fmt.Println("a lock was lost on the way:", err)
	}
}

// A server has the newest limits at hand, whatever happens to the cell.
func ExampleWatchConfig() {
	type limits struct{ PerSecond int }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	decode := func(contents []byte) (l limits, err error) {
		err = json.Unmarshal(contents, &l)
		return l, err
	}
	f, err := recipe.WatchConfig(ctx, cellOf(), "/ls/foo/web/limits", decode, recipe.ConfigFileOptions[limits]{
		Default: &limits{PerSecond: 100},
		OnError: func(err error) { fmt.Println("the limits stay as they are:", err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(f.Value().PerSecond, f.Fresh())
}
