package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// A candidate is the primary as long as it can be, and makes room for a better one. The loss of its session
// is the end of one campaign, and Renew begins the next.
func ExampleCampaign() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := client.Renew(ctx, cellOf(), func(ctx context.Context, c *client.Client) error {
		for {
			p, err := recipe.Campaign(ctx, c, "/ls/foo/primary", recipe.CampaignOptions{
				Name: "web1", Value: []byte("web1:80"), LockDelay: api.DefaultLockDelay,
			})
			if err != nil {
				return err
			}
			working, stop := context.WithCancel(p.Context())
			stopped := work(working, p.Lock().Sequencer())
			select {
			case <-working.Done(): // it has lost
			case <-p.Asked(): // a better candidate waits
			case <-ctx.Done():
			}
			stop()
			<-stopped
			if err := p.Resign(ctx); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		fmt.Println(err)
	}
}

// An operator has another candidate be the primary.
func ExampleNominate() {
	ctx, c, done := connect()
	if c == nil {
		return
	}
	defer done()
	list, err := recipe.Candidates(ctx, c, "/ls/foo/primary")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range list {
		fmt.Println(k.Rank, k.Name, k.Priority, k.Primary)
	}
	if err := recipe.Nominate(ctx, c, "/ls/foo/primary", "web2"); err != nil {
		fmt.Println(err)
	}
}

// Whoever is not a candidate looks who is the primary.
func ExampleObserve() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := client.Renew(ctx, cellOf(), func(ctx context.Context, c *client.Client) error {
		for reign, err := range recipe.Observe(ctx, c, "/ls/foo/primary") {
			switch {
			case err != nil:
				return err
			case reign.Vacant:
				fmt.Println("no primary")
			case reign.Value != nil:
				fmt.Printf("primary: %s\n", reign.Value)
			}
		}
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		fmt.Println(err)
	}
}
