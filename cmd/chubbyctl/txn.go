package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type txnOptions struct {
	*globals
	steps   []*txnStep // in the order of their flags
	consent consent
}

func newTxnCommand(g *globals) *cobra.Command {
	o := &txnOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Change several files at one moment, or none, on conditions",
		Long: fmt.Sprintf(`txn writes, creates and deletes several nodes of one cell at one moment, if all
of its conditions hold; else it changes nothing, and exits with %d. Readers see all
of the changes, or none. They are made in the order of their flags, and each
condition is about what there was before the first.

A VALUE is taken as it is written, whatever is in it; - alone reads it from
standard input, which may not be empty. What a program writes that fails halfway is
taken for the whole, so write that to a file first. --put-file and --create-file
take it from a FILE of this machine, with all of its bytes. A VALUE and a FILE begin
behind the first =, and a number behind the last.

Conditions may be given again and again, of nodes that are changed and of others.
--create is --put on the condition that there is no such node. Without a change,
the exit code of txn says whether all conditions hold at one moment.

A transaction has at most %d conditions and %d changes, no path is changed twice,
and its paths and values have together at most %d bytes. A node whose lock
somebody holds is not deleted. An access control list that takes from you the right
to write it again is not written without --yes.

With -o json there is a line for each change, in their order: that of put, or of
rm. An error has in .error.path which condition, or which change, it is about.

Exit codes: %d if a condition does not hold, or SEQ is not valid; the others are
those of put and rm.`, exitMismatch, api.MaxTxnSteps, api.MaxTxnSteps, api.MaxContents, exitMismatch),
		Example: `  # an item from one file to another, if nobody was faster
  chubbyctl txn --if-generation next=17 --rm next --create 'running=item 4'
  # two files of which nobody sees one without the other
  chubbyctl txn --put-file svc/tls.crt=new.crt --put-file svc/tls.key=new.key
  # only as the holder of a lock
  chubbyctl txn --if-sequencer "$CHUBBY_SEQUENCER" --put svc/state=up --rm old
  # in place of what was read, unless that was changed, or svc/frozen is there
  g=$(chubbyctl -o json stat svc/limits | jq .content_generation)
  ./raise >new && chubbyctl txn --if-generation "svc/limits=$g" \
    --if-absent svc/frozen --put-file svc/limits=new`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.build(cmd); err != nil {
				return err
			}
			return o.commit(cmd)
		},
	}
	o.addSteps(cmd)
	o.consent.flag(cmd)
	return cmd
}

func (o *txnOptions) commit(cmd *cobra.Command) error {
	var stats []api.Stat
	err := o.withSessionAt(cmd.Context(), o.steps[0].path.Cell(), o.steps[0].path, func(ctx context.Context, c *client.Client) error {
		if err := o.consent.confirmListChanges(ctx, c, o.lists()); err != nil {
			return err
		}
		own := c.Txn()
		for _, s := range o.steps {
			s.addTo(own)
		}
		var err error
		stats, err = own.Commit(ctx)
		return err
	})
	if err != nil {
		return o.explain(err)
	}
	if err := o.printTxn(cmd, stats); err != nil {
		return &exitError{exitFailed, fmt.Errorf("the changes were made, but that could not be written: %w", err)}
	}
	return nil
}

// explain names the flag of the step in an error, sets the exit code of a failed condition, and adds advice for
// written files.
func (o *txnOptions) explain(err error) error {
	code := api.CodeOf(err)
	if s := o.stepOf(err); s != nil {
		if s.writes() {
			err = withAdvice(err, s.path, client.File)
		}
		err = fmt.Errorf("--%s: %w", s.flag, err)
	}
	if code == api.BadSequencer || code == api.Exists { // GenerationMismatch already has that exit code
		return &exitError{exitMismatch, err}
	}
	return err
}

// stepOf returns the step of a cell's error; nil if there is no such step, or it is unclear.
func (o *txnOptions) stepOf(err error) *txnStep {
	var e *api.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code {
	case api.Uncertain, api.Unavailable, api.NotMaster, api.StaleEpoch, api.SessionExpired, api.Cancelled, api.DeadlineExceeded, api.TooLarge, api.InvalidArgument:
		return nil // it is about all; its path is the first change's
	}
	others := func(s *txnStep) bool {
		about := s.path.String() == e.Path && e.Path != ""
		switch e.Code {
		case api.GenerationMismatch:
			return !about || !s.isCondition() || s.takes == "SEQ"
		case api.BadSequencer:
			return s.takes != "SEQ"
		case api.PermissionDenied: // either may be refused
			return !about
		}
		return !about || s.isCondition()
	}
	if found := slices.DeleteFunc(slices.Clone(o.steps), others); len(found) == 1 {
		return found[0]
	}
	return nil
}

// printTxn prints each change as put and rm do.
func (o *txnOptions) printTxn(cmd *cobra.Command, stats []api.Stat) error {
	changes := 0
	for _, s := range o.steps {
		if s.isCondition() {
			continue
		}
		stat := stats[changes]
		changes++
		var err error
		if s.writes() {
			err = o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", stat)
		} else {
			err = o.did(cmd.OutOrStdout(), cmd.ErrOrStderr(), removedFields{Path: s.path.String(), Deleted: true}, "deleted %v", s.path)
		}
		if err != nil {
			return err
		}
	}
	if changes == 0 && o.verbose && !o.json() {
		term.Remark(cmd.ErrOrStderr(), "every condition holds")
	}
	return nil
}

// lists returns the changed access control lists by path, with their new contents; nil: deleted.
func (o *txnOptions) lists() map[api.Path]*string {
	lists := map[api.Path]*string{}
	for _, s := range o.steps {
		if s.isCondition() || !isList(s.path) {
			continue
		}
		lists[s.path] = nil
		if text := string(s.value); s.writes() {
			lists[s.path] = &text
		}
	}
	return lists
}
