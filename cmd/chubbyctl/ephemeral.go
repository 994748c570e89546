package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/sequencer"
)

// keepEphemeral creates an ephemeral file, only while seq is valid unless that is nil, and keeps it until an interrupt.
func (o *putOptions) keepEphemeral(cmd *cobra.Command, p api.Path, value []byte, seq *sequencer.Sequencer) error {
	var h *client.Handle
	var stat api.Stat
	create := func(ctx context.Context, c *client.Client) (err error) {
		h, err = c.Open(ctx, p.String(), client.OpenOptions{
			Write:       true,
			Create:      client.NewFile,
			Ephemeral:   true,
			Contents:    value,
			IfSequencer: seq,
			Events:      []api.EventKind{api.EventLockAcquired}, // any kind will do: a handle with events is also told that its file is gone
		})
		if err != nil {
			return o.exitCodeOf(withAdvice(err, p, client.NewFile))
		}
		stat, _ = h.CreatedStat()
		return nil
	}
	return o.withLastingSession(cmd.Context(), p, create, func(ctx context.Context, _ *client.Client) error {
		if err := o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", stat); err != nil {
			return &exitError{exitFailed, fmt.Errorf("%v goes with this session: that it was created could not be written: %w", p, err)}
		}
		if !o.json() {
			term.Remark(cmd.ErrOrStderr(), "%v lives as long as this command; end it with Ctrl-C", p)
		}
		return awaitEnd(ctx, h)
	})
}

// awaitEnd waits for an interrupt, or until a node that belongs to this session is gone.
func awaitEnd(ctx context.Context, h *client.Handle) error {
	for {
		_, err := h.Next(ctx)
		switch {
		case isInterrupted(ctx):
			return nil
		case err != nil:
			return fmt.Errorf("%s is gone: %w", h.Path(), err)
		}
	}
}
