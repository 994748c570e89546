package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/sequencer"
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
			switch path := s.path.String(); {
			case s.isCondition():
				own.If(path, s.condition)
			case !s.writes():
				own.Delete(path)
			case strings.HasPrefix(s.flag, "create"):
				own.Create(path, s.value)
			default:
				own.Put(path, s.value)
			}
		}
		var err error
		stats, err = own.Commit(ctx)
		return err
	})
	if err != nil {
		return o.explain(err)
	}
	for _, s := range o.steps { // each change as put and rm do
		switch {
		case s.isCondition():
			continue
		case s.writes():
			err = o.printChange(cmd.OutOrStdout(), cmd.ErrOrStderr(), "wrote", stats[0])
		default:
			err = o.did(cmd.OutOrStdout(), cmd.ErrOrStderr(), removedFields(s.path), "deleted %v", s.path)
		}
		if stats = stats[1:]; err != nil {
			return &exitError{exitFailed, fmt.Errorf("the changes were made, but that could not be written: %w", err)}
		}
	}
	if o.verbose && !o.json() && !slices.ContainsFunc(o.steps, func(s *txnStep) bool { return !s.isCondition() }) {
		term.Remark(cmd.ErrOrStderr(), "every condition holds")
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

// stepKind is a flag of txn: a condition, or a change.
type stepKind struct {
	flag, takes, does string
	check             func(api.Generation) client.WriteOption // a condition, of the number given, else of 0
}

func stepKinds() []stepKind {
	return []stepKind{
		{"if-generation", "PATH=G", "only if the contents of the file are at this generation; 0: only if there is no such node", client.IfGeneration},
		{"if-instance", "PATH=I", "only if the node is this instance, with any contents", client.IfInstance},
		{"if-absent", "PATH", "only if there is no such node", client.IfGeneration},
		{"if-exists", "PATH", "only if there is such a node", func(api.Generation) client.WriteOption { return client.IfExists() }},
		{"if-sequencer", "SEQ", "only if the sequencer is valid: its lock is still held", nil},
		{"put", "PATH=VALUE", "write a file, creating it if absent", nil},
		{"put-file", "PATH=FILE", "the same, with what is in a file of this machine", nil},
		{"create", "PATH=VALUE", "create a file, only if there is no such node", nil},
		{"create-file", "PATH=FILE", "the same, with what is in a file of this machine", nil},
		{"rm", "PATH", "delete a file, or a directory that is empty by then", nil},
	}
}

// txnStep is a condition or a change of a transaction, as given.
type txnStep struct {
	stepKind
	text string // as typed: --flag text

	path      api.Path // of a sequencer: its lock
	condition client.WriteOption
	source    string // of a value: a local file, "-" for standard input; "" if given directly
	value     []byte
}

func (s *txnStep) isCondition() bool { return strings.HasPrefix(s.flag, "if-") }

func (s *txnStep) writes() bool { return !s.isCondition() && s.flag != "rm" }

// stepFlag is the value of a flag that adds a step each time: steps have the order of the flags.
type stepFlag struct {
	stepKind
	steps *[]*txnStep
}

func (*stepFlag) String() string { return "" }

func (f *stepFlag) Type() string { return f.takes }

func (f *stepFlag) Set(text string) error {
	*f.steps = append(*f.steps, &txnStep{stepKind: f.stepKind, text: text})
	return nil
}

func (o *txnOptions) addSteps(cmd *cobra.Command) {
	for _, kind := range stepKinds() {
		complete := o.completeStep
		switch kind.takes {
		case "PATH":
			complete = o.completeNode
		case "SEQ":
			complete = o.complete(ownSequencer)
		}
		cmd.Flags().Var(&stepFlag{kind, &o.steps}, kind.flag, kind.does)
		// Fails for a missing flag, or one with a completion.
		_ = cmd.RegisterFlagCompletionFunc(kind.flag, complete)
	}
	cmd.Flags().SortFlags = false
}

// completeStep completes the path in PATH=REST, with its =.
func (o *txnOptions) completeStep(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(half, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := o.completePath(cmd, nil, half)
	for i, name := range names {
		if !strings.HasSuffix(name, "/") {
			names[i] += "="
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (o *txnOptions) build(cmd *cobra.Command) error {
	for _, s := range o.steps {
		if err := o.parseStep(s); err != nil {
			return err
		}
	}
	if err := o.checkSteps(); err != nil {
		return err
	}
	if err := o.checkPipes(cmd.InOrStdin()); err != nil {
		return err
	}
	return o.readValues(cmd)
}

func (o *txnOptions) parseStep(s *txnStep) error {
	want := func(what string) error {
		return usagef("--%s %q: want %s; see 'chubbyctl txn --help'", s.flag, abridged(s.text), what)
	}
	var number uint64
	path, rest, found := strings.Cut(s.text, "=")
	switch s.takes {
	case "SEQ":
		seq, err := sequencer.Parse(s.text)
		if err != nil {
			return &exitError{exitMismatch, fmt.Errorf("--%s: %w", s.flag, err)}
		}
		s.path, s.condition = seq.Path, client.IfSequencer(seq)
		return nil
	case "PATH":
		path = s.text
	case "PATH=VALUE":
		if !found {
			return want("PATH=VALUE; PATH= alone writes an empty file")
		}
		if s.value = []byte(rest); rest == "-" {
			s.source = rest
		}
	case "PATH=FILE":
		if !found {
			return want("PATH=FILE")
		}
		if s.source = rest; rest == "" {
			return want("the name of a file of this machine behind the =, or - for standard input")
		}
	default:
		cut := strings.LastIndexByte(s.text, '=')
		if cut < 0 {
			return want("PATH=NUMBER, as 'chubbyctl stat' shows it")
		}
		var err error
		path = s.text[:cut]
		number, err = strconv.ParseUint(s.text[cut+1:], 10, 64)
		switch {
		case err != nil:
			return want("behind the last = a whole number, as 'chubbyctl stat' shows it")
		case number == 0 && s.flag == "if-instance":
			return want("an instance, which is never 0; --if-absent is for a node that is not there")
		}
	}
	if s.check != nil {
		s.condition = s.check(api.Generation(number))
	}
	if s.takes != "PATH" && (strings.Contains(path, `\=`) || strings.HasSuffix(path, `\`)) {
		return usagef("--%s %q: a path ends at its =, also behind a backslash; 'chubbyctl put' and 'cp' take paths with one", s.flag, abridged(s.text))
	}
	p, err := o.parsePath(path)
	if err != nil {
		return usagef("--%s %q: %s", s.flag, abridged(s.text), explanation(err))
	}
	s.path = p
	return nil
}

// checkSteps rejects transactions that no cell accepts.
func (o *txnOptions) checkSteps() error {
	if len(o.steps) == 0 {
		return usagef("txn: neither a condition nor a change is given, as in 'chubbyctl txn --if-absent PATH --put PATH=VALUE'; see 'chubbyctl txn --help'")
	}
	conditions, input := 0, (*txnStep)(nil)
	changed := map[api.Path]*txnStep{}
	for _, s := range o.steps {
		if s.path.Cell() != o.steps[0].path.Cell() {
			return usagef("txn: --%s: %v is in another cell than %v; a transaction is of one", s.flag, s.path, o.steps[0].path)
		}
		if s.isCondition() {
			conditions++
			continue
		}
		if before := changed[s.path]; before != nil {
			return usagef("txn: --%s and --%s both change %v; a transaction changes a path once", before.flag, s.flag, s.path)
		}
		changed[s.path] = s
		if s.source == "-" {
			if input != nil {
				return usagef("txn: --%s of %v and --%s of %v both want standard input, which is there once", input.flag, input.path, s.flag, s.path)
			}
			input = s
		}
	}
	if changes := len(o.steps) - conditions; max(conditions, changes) > api.MaxTxnSteps {
		return usagef("txn: %d conditions (--if-...) and %d changes; a transaction has at most %d of each", conditions, changes, api.MaxTxnSteps)
	}
	return nil
}

// checkPipes rejects two values from one pipe, under any names, before reading: the second would be empty, or
// never come.
func (o *txnOptions) checkPipes(in io.Reader) error {
	var steps []*txnStep
	var pipes []fs.FileInfo
	for _, s := range o.steps {
		var info fs.FileInfo // nil if there is no source, or it is unknown: reading it reports the error
		switch f, isFile := in.(*os.File); {
		case s.source == "-" && isFile:
			info, _ = f.Stat()
		case s.source != "-" && s.source != "":
			info, _ = os.Stat(s.source)
		}
		if info == nil || info.Mode()&fs.ModeNamedPipe == 0 {
			continue
		}
		if i := slices.IndexFunc(pipes, func(p fs.FileInfo) bool { return os.SameFile(p, info) }); i >= 0 {
			return usagef("txn: --%s of %v and --%s of %v both want what comes through one pipe, which is there once", steps[i].flag, steps[i].path, s.flag, s.path)
		}
		steps, pipes = append(steps, s), append(pipes, info)
	}
	return nil
}

// readValues reads the values that are not on the command line, and rejects more than a transaction may have.
func (o *txnOptions) readValues(cmd *cobra.Command) error {
	size := 0
	for _, s := range o.steps {
		if s.source != "" {
			if err := o.readValue(cmd, s); err != nil {
				return err
			}
		}
		if size += len(s.path.String()) + len(s.value); size > api.MaxContents {
			return &api.Error{Code: api.TooLarge, Op: "txn", Path: s.path.String(), Message: fmt.Sprintf(
				"up to --%s of it, paths and values have together more than %d bytes (256 KiB), the most a transaction may have; keep large data elsewhere and its location here. Nothing was sent", s.flag, api.MaxContents)}
		}
	}
	return nil
}

// readValue reads a value that is not on the command line.
func (o *txnOptions) readValue(cmd *cobra.Command, s *txnStep) (err error) {
	if s.source == "-" {
		s.value, err = o.readInput(cmd, s.source, s.path, fmt.Sprintf("value of %v", s.path))
	} else {
		s.value, err = o.readSource(cmd, s.source, "")
	}
	switch {
	case hasEnded(cmd.Context()):
		return context.Cause(cmd.Context()) // the value may be incomplete
	case err != nil:
		return fmt.Errorf("--%s: %w", s.flag, err)
	case s.source == "-" && len(s.value) == 0: // mostly the program before the pipe has failed
		return usagef("txn: --%s of %v: nothing came from standard input; '--%s %s=' writes an empty file. Nothing was sent",
			s.flag, s.path, strings.TrimSuffix(s.flag, "-file"), s.path)
	}
	return nil
}
