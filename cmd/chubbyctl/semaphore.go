package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
)

type semaphoreOptions struct {
	workOptions
	slots  int
	resize bool
}

func semaphoreVerb(g *globals, cmd *cobra.Command) {
	o := &semaphoreOptions{workOptions: workOptions{globals: g, noun: "directory"}}
	cmd.Args = o.takeArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.takeStreams(cmd)
		if err := o.validate(cmd.Flags().Changed); err != nil {
			return err
		}
		if o.resize {
			return o.resizeSemaphore(cmd.Context())
		}
		return o.runWork(cmd.Context(), o.takeSlot)
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	flags.IntVar(&o.slots, "slots", 0, fmt.Sprintf("how many may hold the semaphore at a time, 1 to %d", recipe.MaxSlots))
	o.addTry(flags, "do not wait if all slots are taken or delayed")
	flags.BoolVar(&o.resize, "resize", false, "make --slots the size of the semaphore, instead of taking a slot")
	keepApart(flags, "resize", "it takes no slot, and runs no command", append(flagsOfHolding(), "try")...)
}

func (o *semaphoreOptions) validate(given func(flag string) bool) error {
	switch {
	case !given("slots"):
		return usagef("semaphore: --slots is missing: how many may hold %v at a time?", o.path)
	case o.slots < 1 || o.slots > recipe.MaxSlots:
		return usagef("--slots %d: want 1 to %d", o.slots, recipe.MaxSlots)
	case o.resize && len(o.argv) > 0:
		return usagef("semaphore: --resize takes no slot, and runs no command")
	}
	return o.workOptions.validate()
}

func (o *semaphoreOptions) takeSlot(ctx, _ context.Context, c *client.Client) (*heldLock, error) {
	sem := recipe.NewSemaphore(c, o.path.String(), o.slots)
	options := recipe.SemaphoreOptions{LockDelay: o.recipeDelay(), Reason: o.reason}
	early := fmt.Sprintf("all %d slots are taken, or the cell does not answer ('chubbyctl locks %v' shows who has them, and who waits)", o.slots, o.path)
	return o.tryOrWait(ctx, minCampaign, early, func(ctx context.Context, w *lockWait) (*heldLock, error) {
		acquire := sem.Acquire
		if w == nil {
			acquire = sem.TryAcquire
		}
		permit, err := acquire(ctx, options)
		var refused *api.Error
		if errors.As(err, &refused) { // the slots are tried in random order
			slices.SortFunc(refused.Holders, func(a, b api.Holder) int { return cmp.Compare(a.Session, b.Session) })
		}
		if err != nil {
			return nil, o.withAdviceOnSize(err)
		}
		held, slot := holding(permit.Lock(), permit.Release), permit.Slot()
		held.slot = &slot
		return held, nil
	})
}

// withAdviceOnSize adds advice to a refusal for a missing directory or a semaphore of another size.
func (o *semaphoreOptions) withAdviceOnSize(err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.InvalidArgument && e.Path == o.path.String() {
		return fmt.Errorf("%w; 'chubbyctl semaphore %s --slots %d --resize' does that", err, quoted(o.path.String()), o.slots)
	}
	return withAdvice(err, o.path, client.Directory)
}

func (o *semaphoreOptions) resizeSemaphore(ctx context.Context) error {
	err := o.withSession(ctx, o.path.Cell(), func(ctx context.Context, c *client.Client) error {
		return recipe.ResizeSemaphore(ctx, c, o.path.String(), o.slots)
	})
	if err != nil {
		return withAdvice(err, o.path, client.Directory)
	}
	fields := struct {
		Path  string `json:"path"`
		Slots int    `json:"slots"`
	}{o.path.String(), o.slots}
	return o.did(o.out, o.err, fields, "%v has %d slots", o.path, o.slots)
}
