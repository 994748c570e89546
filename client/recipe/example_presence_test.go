package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

// A process says that it is up, and what it does, for as long as it runs.
func ExampleAnnounce() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := client.Renew(ctx, cellOf(), func(ctx context.Context, c *client.Client) error {
		p, err := recipe.Announce(ctx, c, "/ls/foo/up", "web1", []byte("idle"))
		if err != nil {
			return err
		}
		if err := p.Update(ctx, []byte("busy")); err != nil {
			return err
		}
		select {
		case <-p.Context().Done(): // the session is over, or another has the name
			return context.Cause(p.Context())
		case <-ctx.Done(): // Renew closes the session, and the file goes with it
			return ctx.Err()
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		fmt.Println(err)
	}
}

// Another process follows who is up.
func ExampleWatchMembers() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	for members, err := range recipe.WatchMembers(ctx, c, "/ls/foo/up") {
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range members {
			fmt.Printf("%s is %s\n", m.Name, m.Value)
		}
	}
}

// A server publishes its address, and withdraws it before it stops.
func ExamplePublish() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	published, err := recipe.Publish(ctx, c, "/ls/foo/web", recipe.Endpoint{Address: "web1:80", Weight: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := recipe.Lookup(ctx, c, "/ls/foo/web")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range list {
		fmt.Println(e.Address, e.Weight)
	}
	if err := published.Withdraw(ctx); err != nil {
		fmt.Println(err)
	}
}
