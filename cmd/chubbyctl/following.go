package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// final is what a command that follows something ends with, in place of going on in another session.
type final struct{ error }

// follower is what a command follows in a session, and in the next when that has ended.
type follower struct {
	// sessions has the session, for what goes on in the next by itself; set before begin is called.
	sessions client.Sessions
	// begin opens what is followed. In the first session --timeout bounds it. nil opens nothing.
	begin func(ctx context.Context, c *client.Client) error
	// follow goes on until ctx ends, which the session ends too, or with a final. gap says why the session before has ended, after
	// which things may have been missed; nil in the first session.
	follow func(ctx context.Context, c *client.Client, gap error) error
}

// withFollowing follows something until an interrupt, or a final. A session that ends, because this machine was suspended, say, or the
// cell was away for long, is followed by another.
func (g *globals) withFollowing(ctx context.Context, path api.Path, f *follower) error {
	bound, cancel := g.withTimeout(ctx)
	defer cancel()
	report := g.reportWait(bound, path.Cell(), path)
	defer report.stop()
	keeper, err := client.Keep(ctx, g.config(path.Cell()))
	if err != nil {
		return err
	}
	f.sessions = keeper
	var begun *client.Client // the last session in which it was begun
	defer func() { g.closeKeeper(ctx, keeper, begun) }()
	begin := func(ctx context.Context, c *client.Client) error {
		if f.begin != nil {
			if err := f.begin(ctx, c); err != nil {
				return err
			}
		}
		begun = c
		return nil
	}
	if err := keeper.Do(bound, func(c *client.Client) error { return begin(bound, c) }); err != nil {
		return report.explain(err)
	}
	report.stop()
	life, end := context.WithCancel(ctx)
	defer end()
	var last *final
	err = keeper.Renew(life, func(ctx context.Context, c *client.Client) error {
		var gap error
		if c != begun {
			gap = begun.Err()
			if err := begin(ctx, c); err != nil {
				return err
			}
		}
		err := f.follow(ctx, c, gap)
		if one := (final{}); errors.As(err, &one) {
			last = &one
			end() // also if the session has just ended
		}
		return err
	})
	switch {
	case last != nil:
		return last.error
	case hasEnded(ctx):
		return nil
	}
	return err
}

// followEach tells of everything that a watch yields of a node, in one session after another.
func followEach[T any](
	ctx context.Context, g *globals, path api.Path, watch func(context.Context, *client.Client, string) iter.Seq2[T, error], tell func(T) error,
) error {
	return g.withFollowing(ctx, path, &follower{follow: func(ctx context.Context, c *client.Client, gap error) error {
		if gap != nil {
			g.notice(g.stderr, describeGap(gap))
		}
		for one, err := range watch(ctx, c, path.String()) {
			if err != nil {
				return err
			}
			if err := tell(one); err != nil {
				return final{err}
			}
		}
		return nil
	}})
}

// closeKeeper ends the session of a keeper, of which c is the client.
func (g *globals) closeKeeper(ctx context.Context, keeper *client.Keeper, c *client.Client) {
	left := time.Duration(0)
	if c != nil {
		left = c.Left()
	}
	g.sayFarewell(ctx, left, closeBound, keeper.Close)
}

// describeGap says in words why a session has ended, and what that means for who follows something.
func describeGap(gap error) string {
	why := ""
	if cause := client.Cause(0); errors.As(gap, &cause) {
		why = " (" + cause.Error() + ")"
	}
	return fmt.Sprintf("the session ended%s, and another was opened: what came and went meanwhile is not told", why)
}
