package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

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

// hasEnded reports whether an interrupt has ended a command that runs until then.
func hasEnded(ctx context.Context) bool { return ctx.Err() != nil }
