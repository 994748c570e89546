//go:build linux

package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/sequencer"
)

// work works until its context ends, and closes what it returns when it has stopped.
func work(ctx context.Context, _ sequencer.Sequencer) <-chan struct{} {
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() { close(stopped) })
	return stopped
}

// A candidate is the primary as long as it can be, and makes room for a better one. If its session is lost, Renew
// begins the next campaign.
func ExampleCampaign() {
	ctx, cfg, stop := newCell()
	defer stop()
	running, end := context.WithCancel(ctx) // in a program, a signal ends it
	err := client.Renew(running, cfg, func(ctx context.Context, c *client.Client) error {
		p, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{
			Name: "web1", Value: []byte("web1:80"), LockDelay: api.DefaultLockDelay,
		})
		if err != nil {
			return err
		}
		working, stop := context.WithCancel(p.Context())
		stopped := work(working, p.Lock().Sequencer())
		end()
		select {
		case <-working.Done(): // it has lost
		case <-p.Asked(): // a better candidate waits
		case <-ctx.Done():
		}
		stop()
		<-stopped
		return p.Resign(ctx)
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output: true
}

// The primary of an election says where it is, and others read it.
func ExampleObserve() {
	ctx, c, done := newSession()
	defer done()
	p, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{Name: "web1", Value: []byte("web1:80")})
	if err != nil {
		fmt.Println(err)
		return
	}
	for reign, err := range recipe.Observe(ctx, c, "/ls/local/primary") {
		if err != nil || reign.Vacant {
			fmt.Println("no primary", err)
			break
		}
		fmt.Printf("primary: %s\n", reign.Value)
		if err := p.Resign(ctx); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("work may go on:", p.Context().Err() == nil)
	// Output:
	// primary: web1:80
	// no primary <nil>
	// work may go on: false
}

// An operator has another candidate be the primary.
func ExampleNominate() {
	ctx, c, done := newSession()
	defer done()
	first, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{Name: "web1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	queued, elected := make(chan struct{}, 100), make(chan *recipe.Primary)
	go func() {
		p, err := recipe.Campaign(ctx, c, "/ls/local/primary", recipe.CampaignOptions{
			Name: "web2", OnQueued: func(client.Queued) { queued <- struct{}{} },
		})
		if err != nil {
			fmt.Println(err)
		}
		elected <- p
	}()
	<-queued
	if err := recipe.Nominate(ctx, c, "/ls/local/primary", "web2"); err != nil {
		fmt.Println(err)
	}
	<-first.Asked()
	if err := first.Resign(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println((<-elected).Name())
	// Output: web2
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

// A process says that it is up, and what it does, and another follows that.
func ExampleAnnounce() {
	ctx, c, done := newSession()
	defer done()
	p, err := recipe.Announce(ctx, c, "/ls/local/up", "web1", []byte("idle"))
	if err != nil {
		fmt.Println(err)
		return
	}
	next := []func() error{
		func() error { return p.Update(ctx, []byte("busy")) },
		func() error { return p.Withdraw(ctx) },
	}
	for members, err := range recipe.WatchMembers(ctx, c, "/ls/local/up") {
		for _, m := range members {
			fmt.Printf("%s is %s\n", m.Name, m.Value)
		}
		if err != nil || len(members) == 0 {
			fmt.Println("nobody is up", err)
			return
		}
		if err := next[0](); err != nil {
			fmt.Println(err)
		}
		next = next[1:]
	}
	// Output:
	// web1 is idle
	// web1 is busy
	// nobody is up <nil>
}

// A server publishes its address, and withdraws it before it stops.
func ExamplePublish() {
	ctx, c, done := newSession()
	defer done()
	published, err := recipe.Publish(ctx, c, "/ls/local/web", recipe.Endpoint{Address: "web1:80", Weight: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := recipe.Lookup(ctx, c, "/ls/local/web")
	for _, e := range list {
		fmt.Println(e.Address, e.Weight)
	}
	fmt.Println(errors.Join(err, published.Withdraw(ctx)))
	// Output:
	// web1:80 2
	// <nil>
}
