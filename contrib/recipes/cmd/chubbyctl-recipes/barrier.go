package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/recipes"
	"github.com/chubbylock/chubby/internal/supervise"
)

// barrierOptions are those of barrier.
type barrierOptions struct {
	*globals
	path    api.Path
	parties int
	wait    time.Duration
	waits   bool // --wait was given
}

func newBarrierCommand(g *globals) *cobra.Command {
	o := &barrierOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "barrier PATH --parties N",
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
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.path, err = o.parsePath("barrier", args[0]); err != nil {
				return err
			}
			o.waits = cmd.Flags().Changed("wait")
			switch {
			case !cmd.Flags().Changed("parties"):
				return usagef("barrier: --parties is missing: how many are waited for at %v?", o.path)
			case o.parties < 1 || o.parties > recipes.MaxParty:
				return usagef("--parties %d: want 1 to %d", o.parties, recipes.MaxParty)
			case o.waits && o.wait <= 0:
				return usagef("--wait %v: want a duration, as in 30s", o.wait)
			}
			return o.withSession(cmd.Context(), o.path, func(ctx, _ context.Context, c *client.Client) error { return o.meet(ctx, c) })
		},
	}
	cmd.Flags().IntVar(&o.parties, "parties", 0, fmt.Sprintf("how many are waited for, this one included, 1 to %d", recipes.MaxParty))
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to wait for the others (default: without limit)")
	return cmd
}

// roundFields is what barrier -o json prints.
type roundFields struct {
	Path    string `json:"path"`
	Parties int    `json:"parties"`
	Round   uint64 `json:"round"`
}

// meet waits until all have come.
func (o *barrierOptions) meet(ctx context.Context, c *client.Client) (err error) {
	supervise.CatchBrokenPipes() // a closed output is an error, after which the barrier is left
	waiting, cancel := context.WithCancel(ctx)
	if o.waits {
		waiting, cancel = context.WithTimeoutCause(ctx, o.wait, &exitError{exitWaited, &api.Error{Code: api.DeadlineExceeded, Op: "barrier",
			Path: o.path.String(), Message: fmt.Sprintf("--wait %v ran out; fewer than %d have come", o.wait, o.parties)}})
	}
	defer cancel()
	silent := time.AfterFunc(patience, func() {
		o.notice(fmt.Sprintf("waiting for %v: fewer than %d have come, or those of the round before have not left", o.path, o.parties))
	})
	pass, err := recipes.NewDoubleBarrier(c, o.path.String(), o.parties).Enter(waiting)
	silent.Stop()
	if err != nil {
		ranOut := (*exitError)(nil)
		switch over := errors.As(context.Cause(waiting), &ranOut); {
		case over && errors.Is(err, api.Uncertain): // it is unknown whether fewer have come
			return &exitError{exitWaited, fmt.Errorf("--wait %v ran out, and the cell has not answered: %w", o.wait, err)}
		case over:
			return ranOut
		}
		return withAdvice(err, o.path)
	}
	if o.json() {
		err = o.object(o.out, roundFields{o.path.String(), o.parties, pass.Round()})
	} else if o.verbose {
		o.say("%d have come, in round %d", o.parties, pass.Round())
	}
	if err != nil {
		err = &exitError{exitFailed, fmt.Errorf("all have come to %v, but that could not be written: %w", o.path, err)}
	}
	// All have come. This command does not wait until all have left: the end of its session shows that it has.
	leaving, stop := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
	defer stop()
	_ = pass.Leave(leaving)
	return err
}
