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

func txnVerb(g *globals, cmd *cobra.Command) {
	o := &txnOptions{globals: g}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.build(cmd); err != nil {
			return err
		}
		return o.commit(cmd)
	}
	o.addSteps(cmd)
	o.consent.flag(cmd)
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
