package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type barrierOptions struct {
	*globals
	parties int
	wait    time.Duration
	waits   bool // --wait was given
}

func newBarrierCommand(g *globals) *cobra.Command {
	o := &barrierOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "barrier PATH --parties N [flags]",
		Short: "Wait until N have come, so that they begin together",
		Long: fmt.Sprintf(`barrier waits until N commands wait at the barrier PATH, a directory, which it creates if
absent; the directory above has to exist. Then all of them end with 0, and what follows
them begins together. The next N that come are the next round.

One that is interrupted, or whose --wait runs out, does not count; nor does one that was
killed, once the cell has ended its session. All who use a barrier name the same N;
another number is refused (exit code %d), with the one that is right.

barrier says that N were there at one moment. It holds nothing afterwards: one of them may
fail in the next moment.

Exit codes: 0 when N have come; %d if --wait ran out; 128+n for signal n; %d if no master
was found within --timeout; %d if permission was denied.`, exitUsage, exitWaited, exitUnavailable, exitDenied),
		Example: `  chubbyctl barrier /ls/local/simulation --parties 8 && ./simulate
  chubbyctl barrier /ls/local/rollout --parties 3 --wait 10m || echo 'too few'`,
		RunE: g.onPath(func(cmd *cobra.Command, path api.Path) error {
			o.waits = cmd.Flags().Changed("wait")
			if err := o.validate(path, cmd.Flags().Changed("parties")); err != nil {
				return err
			}
			return o.meet(cmd, path)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.parties, "parties", 0, fmt.Sprintf("how many are waited for, this one included, 1 to %d", recipe.MaxParty))
	flags.DurationVar(&o.wait, "wait", 0, "how long to wait for the others (default: without limit)")
	return cmd
}

func (o *barrierOptions) validate(path api.Path, given bool) error {
	switch {
	case path.IsRoot():
		return usagef("barrier: %v is the root directory of its cell; name a directory below it, as in %v/rollout", path, path)
	case !given:
		return usagef("barrier: --parties is missing: how many are waited for at %v?", path)
	case o.parties < 1 || o.parties > recipe.MaxParty:
		return usagef("--parties %d: want 1 to %d", o.parties, recipe.MaxParty)
	case o.waits && o.wait <= 0:
		return usagef("--wait %v: want a duration, as in 30s", o.wait)
	}
	return nil
}

type roundFields struct {
	Path    string `json:"path"`
	Parties int    `json:"parties"`
	Round   uint64 `json:"round"`
}

func (o *barrierOptions) meet(cmd *cobra.Command, path api.Path) error {
	return o.withLastingSession(cmd.Context(), path, nil, func(_ context.Context, c *client.Client) error { return o.enter(cmd, c, path) })
}

// enter waits in a session until all have come.
func (o *barrierOptions) enter(cmd *cobra.Command, c *client.Client, path api.Path) error {
	ctx := cmd.Context()
	waiting, cancel := o.withWait(ctx, path)
	defer cancel()
	silent := time.AfterFunc(term.Patience, func() {
		o.notice(o.stderr, fmt.Sprintf("waiting for %v: fewer than %d have come, or those of the round before have not left", path, o.parties))
	})
	pass, err := recipe.NewDoubleBarrier(c, path.String(), o.parties).Enter(waiting)
	silent.Stop()
	if err != nil {
		ranOut := (*exitError)(nil)
		switch over := errors.As(context.Cause(waiting), &ranOut); {
		case over && errors.Is(err, api.Uncertain): // it is unknown whether fewer have come
			return &exitError{exitWaited, fmt.Errorf("--wait %v ran out, and the cell has not answered: %w", o.wait, err)}
		case over:
			return ranOut
		}
		return lastError(ctx, withAdvice(err, path, client.Directory))
	}
	err = o.did(cmd.OutOrStdout(), o.stderr, roundFields{path.String(), o.parties, pass.Round()}, "%d have come, in round %d", o.parties, pass.Round())
	if err != nil {
		err = &exitError{exitFailed, fmt.Errorf("all have come to %v, but that could not be written: %w", path, err)}
	}
	// All have come. This command does not wait until all have left: the end of its session shows that it has.
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellBound)
	defer cancel()
	_ = pass.Leave(leaving)
	return err
}

func (o *barrierOptions) withWait(ctx context.Context, path api.Path) (context.Context, context.CancelFunc) {
	if !o.waits {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.wait, &exitError{exitWaited, &api.Error{
		Code: api.DeadlineExceeded, Op: "barrier", Path: path.String(), Message: fmt.Sprintf("--wait %v ran out; fewer than %d have come", o.wait, o.parties),
	}})
}
