package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// keepEphemeral creates an ephemeral file and keeps it until an interrupt.
func (o *putOptions) keepEphemeral(cmd *cobra.Command, p api.Path, value []byte) error {
	ctx := cmd.Context()
	bound, cancel := o.withTimeout(ctx)
	defer cancel()
	report := o.reportWait(bound, p.Cell(), p)
	defer report.stop()
	c, err := client.New(bound, o.config(p.Cell()))
	if err != nil {
		return report.explain(err)
	}
	defer o.closeSession(ctx, c)
	h, err := c.Open(bound, p.String(), client.OpenOptions{
		Write:     true,
		Create:    client.NewFile,
		Ephemeral: true,
		Contents:  value,
		Events:    []api.EventKind{api.EventLockAcquired}, // any kind will do: a handle with events is also told that its file is gone
	})
	if err != nil {
		return report.explain(withAdvice(err, p, client.NewFile))
	}
	stat, err := h.Stat(bound)
	if err != nil {
		return report.explain(err)
	}
	report.stop()
	if err := o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "created", stat); err != nil {
		return err
	}
	if !o.json() {
		term.Remark(cmd.ErrOrStderr(), "%v lives as long as this command; end it with Ctrl-C", p)
	}
	return awaitEnd(ctx, h)
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
