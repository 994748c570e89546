package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type txnOptions struct {
	*globals
	steps   []txnStep // in the order of their flags
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
take it from a FILE of this machine, with all of its bytes. Where an = follows a PATH,
write \= for an = in it, and \\ for a backslash before an =; a PATH alone is taken as
it is written.

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
			t, err := o.build(cmd)
			if err != nil {
				return err
			}
			return o.commit(cmd, t)
		},
	}
	o.addSteps(cmd)
	o.consent.flag(cmd)
	return cmd
}

func (o *txnOptions) commit(cmd *cobra.Command, t *transaction) error {
	var stats []api.Stat
	err := o.withSessionAt(cmd.Context(), t.cell(), t.steps[0].path, func(ctx context.Context, c *client.Client) error {
		if err := o.consent.confirmListChanges(ctx, c, t.lists()); err != nil {
			return err
		}
		own := c.Txn()
		for _, s := range t.steps {
			s.addTo(own)
		}
		var err error
		stats, err = own.Commit(ctx)
		return err
	})
	if err != nil {
		return t.explain(err)
	}
	if err := o.printTxn(cmd, t, stats); err != nil {
		return &exitError{exitFailed, fmt.Errorf("the changes were made, but that could not be written: %w", err)}
	}
	return nil
}

// explain names the flag of the step in an error, sets the exit code of a failed condition, and adds advice for
// written files.
func (t *transaction) explain(err error) error {
	code := api.CodeOf(err)
	if s := t.stepOf(err); s != nil {
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
func (t *transaction) stepOf(err error) *txnStep {
	var e *api.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code {
	case api.Uncertain, api.Unavailable, api.NotMaster, api.StaleEpoch, api.SessionExpired, api.Cancelled, api.DeadlineExceeded, api.TooLarge, api.InvalidArgument:
		return nil // it is about all; its path is the first change's
	}
	var found *txnStep
	for _, s := range t.steps {
		about := s.path.String() == e.Path && e.Path != ""
		switch e.Code {
		case api.GenerationMismatch:
			about = about && s.isCondition() && s.flag != stepIfSequencer
		case api.BadSequencer:
			about = s.flag == stepIfSequencer
		case api.PermissionDenied: // either may be refused
		default:
			about = about && !s.isCondition()
		}
		if about && found != nil {
			return nil
		}
		if about {
			found = s
		}
	}
	return found
}

// printTxn prints each change as put and rm do.
func (o *txnOptions) printTxn(cmd *cobra.Command, t *transaction, stats []api.Stat) error {
	changes := 0
	for _, s := range t.steps {
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

func (g *globals) completeNode(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completePath(cmd, nil, half)
}

// stepCompletion completes flags of the form PATH=REST: paths with their =, and then REST.
func (g *globals) stepCompletion(flag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
		const more = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		if path, rest, found := cutAssignment(half); found {
			before := half[:len(half)-len(rest)]
			switch flag {
			case stepPutFile, stepCreateFile:
				return filesLike(before, rest), more
			case stepIfGeneration:
				return g.presentNumber(cmd, before, half, path, func(s api.Stat) api.Generation { return s.Content })
			case stepIfInstance:
				return g.presentNumber(cmd, before, half, path, func(s api.Stat) api.Generation { return s.Instance })
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := g.completePath(cmd, nil, unescapedPath(half))
		for i, name := range names {
			if names[i] = escapedPath(name); !strings.HasSuffix(name, "/") {
				names[i] += "="
			}
		}
		return names, more
	}
}

func (g *globals) presentNumber(cmd *cobra.Command, before, half, path string, number func(api.Stat) api.Generation) ([]string, cobra.ShellCompDirective) {
	p, err := g.parsePath(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	stat, err := readNode(cmd.Context(), g.forCompletion(), p, (*client.Client).Stat)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return withPrefix(half, []string{before + strconv.FormatUint(uint64(number(stat)), 10)}), cobra.ShellCompDirectiveNoFileComp
}

// maxFiles is the maximum of offered local files.
const maxFiles = 500

// filesLike offers local files that begin with half, each after before: the shell completes only whole words.
func filesLike(before, half string) []string {
	dir, base := filepath.Split(half)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if len(names) >= maxFiles {
			break
		}
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		names = append(names, before+dir+name)
	}
	return names
}
