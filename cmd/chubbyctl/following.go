package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// final ends a command that follows something; it does not go on in another session.
type final struct{ error }

// follower is what a command follows, in one session after another.
type follower struct {
	// sessions serves followers that change sessions by themselves; set before begin is called.
	sessions client.Sessions
	// begin opens what is followed; --timeout limits it in the first session. May be nil.
	begin func(ctx context.Context, c *client.Client) error
	// follow runs until ctx ends, also with the session, or returns a final. gap is why the last session ended,
	// after which events may be missing; nil in the first session.
	follow func(ctx context.Context, c *client.Client, gap error) error
}

// withFollowing follows something until an interrupt or a final. After the end of a session, for example by
// suspend or a long outage, it uses another.
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
	var begun *client.Client // the last session in which it began
	defer func() { g.sayFarewell(ctx, begun, closeBound, keeper.Close) }()
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

// followEach reports everything that a watch of a node yields, in one session after another.
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

// describeGap says why a session has ended, and what that means for followers.
func describeGap(gap error) string {
	why := ""
	if cause := client.Cause(0); errors.As(gap, &cause) {
		why = " (" + cause.Error() + ")"
	}
	return fmt.Sprintf("the session ended%s, and another was opened: what came and went meanwhile is not told", why)
}

// minEvery is the minimum interval of looks at a cell.
const minEvery = 200 * time.Millisecond

type repetition struct {
	every time.Duration
	times int
}

func (r *repetition) flags(cmd *cobra.Command, unless string) {
	cmd.Flags().DurationVar(&r.every, "every", 2*time.Second, "the time between two looks")
	cmd.Flags().IntVar(&r.times, "times", 0, "how many looks; 0 goes on until Ctrl-C"+unless)
}

func (r *repetition) validate() error {
	switch {
	case r.every < minEvery:
		return usagef("--every %v: want %v or longer", r.every, minEvery)
	case r.times < 0:
		return usagef("--times %d: want 1 or more, or 0 to go on until Ctrl-C", r.times)
	}
	return nil
}

// run repeats look and show until Ctrl-C, which is no failure. It reports a failed look after the first, and
// goes on: that covers a fail-over.
func (r *repetition) run(cmd *cobra.Command, look, show func() error) error {
	for n := 1; ; n++ {
		err := look()
		switch {
		case hasEnded(cmd.Context()):
			return nil
		case err != nil && (n == 1 || n == r.times):
			return err
		case err != nil:
			term.Remark(cmd.ErrOrStderr(), "%v; trying again", err)
		default:
			if err := show(); err != nil {
				return err
			}
		}
		if n == r.times {
			return nil
		}
		if !sleep(cmd.Context(), r.every) {
			return nil
		}
	}
}

// runScreens is run with text for people; on a terminal each screen replaces the last.
func (r *repetition) runScreens(cmd *cobra.Command, look func() error, draw func(term.Style) string) error {
	style, again := term.StyleOf(cmd.OutOrStdout()), false
	return r.run(cmd, look, func() error {
		text := draw(style)
		switch {
		case style.Terminal && r.times != 1:
			text = "\x1b[H\x1b[2J" + text // clears the screen, from the upper left corner
		case again:
			text = "\n" + text
		}
		again = true
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	})
}
