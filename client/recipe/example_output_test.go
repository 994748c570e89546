//go:build linux

package recipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// newCell starts a cell of its own, in this process.
func newCell() (context.Context, client.Config, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cell, err := celltest.New(1)
	if err != nil {
		panic(err)
	}
	return ctx, client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock}, func() {
		cell.Close()
		cancel()
	}
}

// newSession opens a session with a cell of its own, in this process. In a program it is
// client.New(ctx, client.Config{Cell: "foo"}).
func newSession() (context.Context, *client.Client, func()) {
	ctx, cfg, stop := newCell()
	c, err := client.New(ctx, cfg)
	if err != nil {
		panic(err)
	}
	return ctx, c, func() {
		_ = c.Close(ctx)
		stop()
	}
}

// The versions of a file, from the present one on.
func ExampleWatch() {
	ctx, c, done := newSession()
	defer done()
	next := []func() error{
		func() error { _, err := c.Put(ctx, "/ls/local/motd", []byte("open")); return err },
		func() error { _, err := c.Put(ctx, "/ls/local/motd", []byte("closed on Friday")); return err },
		func() error { return c.Delete(ctx, "/ls/local/motd") },
	}
	for change, err := range recipe.Watch(ctx, c, "/ls/local/motd") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v %q\n", change.Kind, change.Contents)
		if len(next) == 0 {
			return
		}
		if err := next[0](); err != nil {
			fmt.Println(err)
		}
		next = next[1:]
	}
	// Output:
	// deleted ""
	// created "open"
	// modified "closed on Friday"
	// deleted ""
}

// The nightly check of a disk gives way to whoever needs the disk for something better. Its request is quiet:
// it waits until a check elsewhere has ended.
func Example_giveWay() {
	ctx, c, done := newSession()
	defer done()
	h, err := c.Open(ctx, "/ls/local/disk", client.OpenOptions{
		Write: true, Create: client.File, LockDelay: api.DefaultLockDelay, Events: []api.EventKind{api.EventConflictingLock},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := h.Acquire(ctx, api.Exclusive, client.Reason("nightly check"), client.Quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	restored := make(chan error)
	go func() { // elsewhere
		restored <- c.Do(ctx, "/ls/local/disk", func(context.Context, *client.Lock) error {
			fmt.Println("restoring")
			return nil
		}, client.Reason("restore"))
	}()
	working, stop := lock.With(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		defer stop() // it may end before anybody asks
		check(working)
	})
	for e, err := range h.Events(working) {
		if err != nil {
			break
		}
		if e.Kind == api.EventConflictingLock || e.Kind == api.EventLost { // after EventLost perhaps a request is missing
			fmt.Println("another asks for the lock, for:", e.Explanation)
			stop() // or time.AfterFunc(notice, stop)
		}
	}
	work.Wait() // the holder finishes its work before it lets go
	if err := errors.Join(lock.Release(ctx), h.Close(ctx), <-restored); err != nil {
		fmt.Println(err)
	}
	// Output:
	// another asks for the lock, for: restore
	// the check has stopped
	// restoring
}

func check(ctx context.Context) {
	<-ctx.Done()
	fmt.Println("the check has stopped")
}

// At most two of all processes convert films at a time; each has a scratch disk of its own.
func ExampleSemaphore() {
	ctx, c, done := newSession()
	defer done()
	sem := recipe.NewSemaphore(c, "/ls/local/converters", 2)
	for range 2 {
		p, err := sem.Acquire(ctx, recipe.SemaphoreOptions{LockDelay: api.DefaultLockDelay, Reason: "a film"})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer p.Release(ctx)
		convert(p.Context(), fmt.Sprintf("/scratch/%d", p.Slot()))
	}
	_, err := sem.TryAcquire(ctx, recipe.SemaphoreOptions{Reason: "a film"})
	fmt.Println("all permits are taken:", errors.Is(err, api.LockHeld))
	// Output: all permits are taken: true
}

func convert(context.Context, string) {}

// Many read an index; now and then one writes it anew.
func ExampleRWLock() {
	ctx, c, done := newSession()
	defer done()
	lock := recipe.NewRWLock(c, "/ls/local/index", recipe.RWLockOptions{LockDelay: api.DefaultLockDelay})
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
	convert(writing.Context(), writing.Lock().Sequencer().String())
	fmt.Println(writing.Release(ctx))
	// Output: <nil>
}

// Two accounts are held while money goes from one to the other.
func ExampleAcquireAll() {
	ctx, c, done := newSession()
	defer done()
	locks, err := recipe.AcquireAll(ctx, c, []string{"/ls/local/zoe", "/ls/local/ann"}, recipe.AllOptions{
		LockDelay: api.DefaultLockDelay, Shared: []string{"/ls/local/rates"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, seq := range locks.Sequencers() {
		fmt.Println(seq.Path, seq.Mode)
	}
	if err := locks.Release(ctx); err != nil {
		fmt.Println("a lock was lost on the way:", err)
	}
	// Output:
	// /ls/local/ann exclusive
	// /ls/local/rates shared
	// /ls/local/zoe exclusive
}

// A server has the newest limits at hand, whatever happens to the cell.
func ExampleWatchConfig() {
	type limits struct{ PerSecond int }
	ctx, cfg, stop := newCell()
	defer stop()
	decode := func(contents []byte) (l limits, err error) {
		err = json.Unmarshal(contents, &l)
		return l, err
	}
	f, err := recipe.WatchConfig(ctx, cfg, "/ls/local/limits", decode, recipe.ConfigFileOptions[limits]{
		Default: &limits{PerSecond: 100},
		OnError: func(err error) { fmt.Println("the limits stay as they are:", err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(f.Value().PerSecond, f.Fresh())
	// Output: 100 true
}

// All files below a directory are at hand, and kept up to date.
func ExampleWatchTree() {
	ctx, cfg, stop := newCell()
	defer stop()
	c, err := client.New(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	put := func(path, contents string) {
		if _, err := c.Put(ctx, path, []byte(contents)); err != nil {
			fmt.Println(err)
		}
	}
	if err := c.MkdirAll(ctx, "/ls/local/web/limits"); err != nil {
		fmt.Println(err)
		return
	}
	put("/ls/local/web/limits/requests", "100")
	put("/ls/local/web/motd", "open")

	web, err := recipe.WatchTree(ctx, cfg, "/ls/local/web", recipe.TreeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer web.Close()
	for name, node := range web.All() {
		fmt.Printf("%s %q\n", name, node.Contents)
	}
	put("/ls/local/web/limits/requests", "200")
	timeout := time.After(time.Minute)
	for {
		changed := web.Changed() // before looking, so that nothing is missed
		if node, _ := web.Get("limits/requests"); string(node.Contents) == "200" {
			fmt.Println("200 now")
			return
		}
		select {
		case <-changed:
		case <-timeout:
			fmt.Println("nothing has changed")
			return
		}
	}
	// Output:
	// . ""
	// limits ""
	// limits/requests "100"
	// motd "open"
	// 200 now
}
