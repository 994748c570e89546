//go:build linux

package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// The primary of an election says where it is, and others read it.
func ExamplePrimary() {
	ctx, c, done := newSession()
	defer done()
	p, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{Name: "web1", Value: []byte("web1:80")})
	if err != nil {
		fmt.Println(err)
		return
	}
	for reign, err := range recipe.Observe(ctx, c, "/ls/local/primary") {
		fmt.Printf("primary: %s %v\n", reign.Value, err)
		break
	}
	fmt.Println("work may go on:", p.Context().Err() == nil)
	if err := p.Resign(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("work may go on:", p.Context().Err() == nil)
	// Output:
	// primary: web1:80 <nil>
	// work may go on: true
	// work may go on: false
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

// The nightly check of a disk gives way to whoever needs the disk for something better.
func ExampleAcquireRevocable() {
	ctx, c, done := newSession()
	defer done()
	check, err := recipe.AcquireRevocable(ctx, c, "/ls/local/disk", recipe.RevocableOptions{Reason: "nightly check"})
	if err != nil {
		fmt.Println(err)
		return
	}
	restored := make(chan error)
	go func() {
		restored <- c.Do(ctx, "/ls/local/disk", func(context.Context, *client.Lock) error {
			fmt.Println("restoring")
			return nil
		}, client.Reason("restore"))
	}()
	<-check.Done() // with a Notice, the check would have that long
	fmt.Println("the check gives way to:", check.AskedFor())
	if err := errors.Join(check.Release(ctx), <-restored); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the check gives way to: restore
	// restoring
}

// A semaphore of two has two permits, each with a slot of its own.
func ExampleSemaphore_TryAcquire() {
	ctx, c, done := newSession()
	defer done()
	sem := recipe.NewSemaphore(c, "/ls/local/converters", 2)
	for range 3 {
		p, err := sem.TryAcquire(ctx, recipe.SemaphoreOptions{Reason: "a film"})
		if errors.Is(err, api.LockHeld) {
			fmt.Println("no permit is free")
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		defer p.Release(ctx)
		fmt.Println("a permit")
	}
	// Output:
	// a permit
	// a permit
	// no permit is free
}

// Who needs more room takes a permit of several slots.
func ExampleSemaphoreOptions() {
	ctx, c, done := newSession()
	defer done()
	memory := recipe.NewSemaphore(c, "/ls/local/memory", 4) // of 4 GB
	large, err := memory.Acquire(ctx, recipe.SemaphoreOptions{Weight: 3, Reason: "a large job"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("slots:", len(large.Slots()))
	_, err = memory.TryAcquire(ctx, recipe.SemaphoreOptions{Weight: 2})
	fmt.Println("room for two:", !errors.Is(err, api.LockHeld))
	if err := large.Release(ctx); err != nil {
		fmt.Println(err)
	}
	small, err := memory.TryAcquire(ctx, recipe.SemaphoreOptions{Weight: 2})
	fmt.Println("room for two:", err == nil)
	if err == nil {
		err = small.Release(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// slots: 3
	// room for two: false
	// room for two: true
}

// A function that needs a lock may be called by one that has it.
func ExampleLocked() {
	ctx, c, done := newSession()
	defer done()
	const path = "/ls/local/accounts"
	add := func(ctx context.Context, account string) error {
		return recipe.Locked(ctx, c, path, recipe.LockedOptions{}, func(context.Context) error {
			fmt.Println("add", account)
			return nil
		})
	}
	err := recipe.Locked(ctx, c, path, recipe.LockedOptions{}, func(ctx context.Context) error {
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

// A latch: another part of the program asks whether it is the primary, waits for that, and sees who takes part.
func ExampleCandidates() {
	ctx, c, done := newSession()
	defer done()
	var latch atomic.Pointer[recipe.Primary]
	hasLeadership := func() bool {
		p := latch.Load()
		return p != nil && p.Err() == nil // what is begun now is under p.Context(), which ends in time
	}
	leads := make(chan struct{})
	var campaign sync.WaitGroup
	campaign.Go(func() { // in a program inside client.Renew, which begins again in the next session
		p, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{Name: "web1", Value: []byte("web1:80")})
		if err != nil {
			fmt.Println(err)
			return
		}
		latch.Store(p)
		close(leads) // isLeader; <-p.Done() is notLeader
	})
	<-leads // await, with the context that bounds it
	second, giveUp := context.WithCancel(ctx)
	queued := make(chan struct{}, 100)
	campaign.Go(func() {
		_, err := recipe.Campaign(second, c, "/ls/local/primary", recipe.CampaignOptions{
			Name: "web2", OnQueued: func(client.Queued) { queued <- struct{}{} },
		})
		fmt.Println("web2 was elected:", err == nil)
	})
	<-queued
	list, err := recipe.Candidates(ctx, c, "/ls/local/primary")
	for _, k := range list {
		fmt.Println(k.Name, k.Primary)
	}
	fmt.Println(err, hasLeadership())
	giveUp()
	campaign.Wait()
	if err := latch.Load().Resign(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(hasLeadership())
	// Output:
	// web1 true
	// web2 false
	// <nil> true
	// web2 was elected: false
	// false
}
