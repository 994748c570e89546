package main

import (
	"cmp"
	"context"
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
	"github.com/chubbylock/chubby/sequencer"
)

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

func (s *txnStep) addTo(t *client.Txn) {
	path := s.path.String()
	switch {
	case s.isCondition():
		t.If(path, s.condition)
	case !s.writes():
		t.Delete(path)
	case strings.HasPrefix(s.flag, "create"):
		t.Create(path, s.value)
	default:
		t.Put(path, s.value)
	}
}

// stepFlag is the value of a flag that adds a step each time: steps have the order of the flags.
type stepFlag struct {
	stepKind
	steps *[]*txnStep
}

func (*stepFlag) String() string { return "" }

// Type is the value's name in help.
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

func (g *globals) completeNode(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	return g.completePath(cmd, nil, half)
}

// completeStep completes the path in PATH=REST, with its =.
func (g *globals) completeStep(cmd *cobra.Command, _ []string, half string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(half, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := g.completePath(cmd, nil, half)
	for i, name := range names {
		if !strings.HasSuffix(name, "/") {
			names[i] += "="
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// build checks all steps, and reads their values.
func (o *txnOptions) build(cmd *cobra.Command) error {
	for _, s := range o.steps {
		if err := o.parseStep(s); err != nil {
			return err
		}
	}
	if err := o.check(); err != nil {
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

// check rejects transactions that no cell accepts.
func (o *txnOptions) check() error {
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
		info := s.statSource(in)
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

// statSource returns the source of a value; nil if there is none, or it is unknown: reading it reports the error.
func (s *txnStep) statSource(in io.Reader) (info fs.FileInfo) {
	switch f, isFile := in.(*os.File); {
	case s.source == "-" && isFile:
		info, _ = f.Stat()
	case s.source != "-" && s.source != "":
		info, _ = os.Stat(s.source)
	}
	return info
}

// readValues reads the values that are not on the command line, and rejects more than a transaction may have.
func (o *txnOptions) readValues(cmd *cobra.Command) error {
	size := 0
	for _, s := range o.steps {
		if s.source != "" {
			if err := o.readSource(cmd, s); err != nil {
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

// readSource reads a value from standard input, or from a local file; either may be a pipe without an end.
func (o *txnOptions) readSource(cmd *cobra.Command, s *txnStep) (err error) {
	if s.source == "-" {
		s.value, err = o.readInput(cmd, s.source, s.path, fmt.Sprintf("value of %v", s.path))
	} else {
		s.value, err = untilInterrupt(cmd.Context(), func() ([]byte, error) {
			f, err := os.Open(s.source)
			if err != nil {
				return nil, err
			}
			value, err := io.ReadAll(io.LimitReader(f, api.MaxContents+1))
			return value, cmp.Or(err, f.Close())
		})
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
