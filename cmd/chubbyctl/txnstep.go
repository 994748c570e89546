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

// The flags of txn, each of which adds a step.
const (
	stepIfGeneration = "if-generation"
	stepIfInstance   = "if-instance"
	stepIfAbsent     = "if-absent"
	stepIfExists     = "if-exists"
	stepIfSequencer  = "if-sequencer"
	stepPut          = "put"
	stepPutFile      = "put-file"
	stepCreate       = "create"
	stepCreateFile   = "create-file"
	stepRemove       = "rm"
)

// txnStep is a condition or a change of a transaction, as given.
type txnStep struct {
	flag, text string // as typed: --flag text

	path      api.Path           // of a sequencer: its lock
	number    api.Generation     // of --if-generation and --if-instance
	sequencer client.WriteOption // of --if-sequencer
	source    string             // of a value: a local file, "-" for standard input; "" if given directly
	value     []byte
}

func (s *txnStep) isCondition() bool { return strings.HasPrefix(s.flag, "if-") }

func (s *txnStep) writes() bool { return !s.isCondition() && s.flag != stepRemove }

func (s *txnStep) addTo(t *client.Txn) {
	path := s.path.String()
	switch s.flag {
	case stepIfGeneration:
		t.If(path, client.IfGeneration(s.number))
	case stepIfInstance:
		t.If(path, client.IfInstance(s.number))
	case stepIfAbsent:
		t.If(path, client.IfGeneration(0))
	case stepIfExists:
		t.If(path, client.IfExists())
	case stepIfSequencer:
		t.If(path, s.sequencer)
	case stepCreate, stepCreateFile:
		t.Create(path, s.value)
	case stepRemove:
		t.Delete(path)
	default:
		t.Put(path, s.value)
	}
}

// stepFlag is the value of a flag that adds a step each time: steps have the order of the flags.
type stepFlag struct {
	name, takes string
	steps       *[]txnStep
}

func (*stepFlag) String() string { return "" }

// Type is the value's name in help.
func (f *stepFlag) Type() string { return f.takes }

func (f *stepFlag) Set(text string) error {
	*f.steps = append(*f.steps, txnStep{flag: f.name, text: text})
	return nil
}

func (o *txnOptions) addSteps(cmd *cobra.Command) {
	for _, f := range []struct {
		name, takes, does string
		complete          cobra.CompletionFunc // nil: of PATH=...
	}{
		{stepIfGeneration, "PATH=G", "only if the contents of the file are at this generation; 0: only if there is no such node", nil},
		{stepIfInstance, "PATH=I", "only if the node is this instance, with any contents", nil},
		{stepIfAbsent, "PATH", "only if there is no such node", o.completeNode},
		{stepIfExists, "PATH", "only if there is such a node", o.completeNode},
		{stepIfSequencer, "SEQ", "only if the sequencer is valid: its lock is still held", o.complete(ownSequencer)},
		{stepPut, "PATH=VALUE", "write a file, creating it if absent", nil},
		{stepPutFile, "PATH=FILE", "the same, with what is in a file of this machine", nil},
		{stepCreate, "PATH=VALUE", "create a file, only if there is no such node", nil},
		{stepCreateFile, "PATH=FILE", "the same, with what is in a file of this machine", nil},
		{stepRemove, "PATH", "delete a file, or a directory that is empty by then", o.completeNode},
	} {
		cmd.Flags().Var(&stepFlag{f.name, f.takes, &o.steps}, f.name, f.does)
		if f.complete == nil {
			f.complete = o.stepCompletion(f.name)
		}
		// Fails for a missing flag, or one with a completion.
		_ = cmd.RegisterFlagCompletionFunc(f.name, f.complete)
	}
	cmd.Flags().SortFlags = false
}

type transaction struct {
	steps []*txnStep
}

func (t *transaction) cell() string { return t.steps[0].path.Cell() }

// lists returns the changed access control lists by path, with their new contents; nil: deleted.
func (t *transaction) lists() map[api.Path]*string {
	lists := map[api.Path]*string{}
	for _, s := range t.steps {
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

// build checks all steps, and reads their values.
func (o *txnOptions) build(cmd *cobra.Command) (*transaction, error) {
	t := &transaction{}
	for i := range o.steps {
		s := &o.steps[i]
		if err := o.parseStep(s); err != nil {
			return nil, err
		}
		t.steps = append(t.steps, s)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := t.checkPipes(cmd.InOrStdin()); err != nil {
		return nil, err
	}
	return t, o.readValues(cmd, t)
}

func (o *txnOptions) parseStep(s *txnStep) error {
	want := func(what string) error {
		return usagef("--%s %q: want %s; see 'chubbyctl txn --help'", s.flag, abridged(s.text), what)
	}
	path := s.text
	switch s.flag {
	case stepIfSequencer:
		seq, err := sequencer.Parse(s.text)
		if err != nil {
			return &exitError{exitMismatch, fmt.Errorf("--%s: %w", s.flag, err)}
		}
		s.path, s.sequencer = seq.Path, client.IfSequencer(seq)
		return nil
	case stepIfGeneration, stepIfInstance:
		cut := strings.LastIndexByte(s.text, '=')
		if cut < 0 || isEscaped(s.text, cut) {
			return want("PATH=NUMBER, as 'chubbyctl stat' shows it")
		}
		path = pathBefore(s.text, cut)
		n, err := strconv.ParseUint(s.text[cut+1:], 10, 64)
		switch {
		case err != nil:
			return want("behind the last = a whole number, as 'chubbyctl stat' shows it")
		case n == 0 && s.flag == stepIfInstance:
			return want("an instance, which is never 0; --if-absent is for a node that is not there")
		}
		s.number = api.Generation(n)
	case stepPut, stepPutFile, stepCreate, stepCreateFile:
		before, rest, found := cutAssignment(s.text)
		if path = before; !found {
			return want(map[bool]string{true: "PATH=FILE", false: "PATH=VALUE; PATH= alone writes an empty file"}[s.takesFile()])
		}
		if s.takesFile() {
			if s.source = rest; rest == "" {
				return want("the name of a file of this machine behind the =, or - for standard input")
			}
		} else if s.value = []byte(rest); rest == "-" {
			s.source = rest
		}
	}
	p, err := o.parsePath(path)
	if err != nil {
		return usagef("--%s %q: %s", s.flag, abridged(s.text), explanation(err))
	}
	s.path = p
	return nil
}

func (s *txnStep) takesFile() bool { return s.flag == stepPutFile || s.flag == stepCreateFile }

// cutAssignment cuts PATH=VALUE at the first unescaped =.
func cutAssignment(text string) (path, value string, found bool) {
	for i := range len(text) {
		if text[i] == '=' && !isEscaped(text, i) {
			return pathBefore(text, i), text[i+1:], true
		}
	}
	return text, "", false
}

// isEscaped reports whether the = at an index belongs to the path: an odd number of backslashes precedes it.
func isEscaped(text string, at int) bool {
	return (at-len(strings.TrimRight(text[:at], `\`)))%2 == 1
}

// pathBefore returns the path before the = at an index.
func pathBefore(text string, at int) string {
	return strings.TrimSuffix(unescapedPath(text[:at+1]), "=")
}

// unescapedPath reverses escapedPath: it halves the backslashes before each =. Others stay.
func unescapedPath(text string) string {
	var b strings.Builder
	for part := range strings.SplitAfterSeq(text, "=") {
		name, found := strings.CutSuffix(part, "=")
		if !found {
			b.WriteString(part)
			continue
		}
		plain := strings.TrimRight(name, `\`)
		b.WriteString(name[:len(plain)+(len(name)-len(plain))/2] + "=")
	}
	return b.String()
}

// escapedPath returns a path as written before an =.
func escapedPath(path string) string {
	parts := strings.Split(path, "=")
	for i, part := range parts {
		parts[i] += part[len(strings.TrimRight(part, `\`)):]
	}
	return strings.Join(parts, `\=`)
}

// check rejects transactions that no cell accepts.
func (t *transaction) check() error {
	if len(t.steps) == 0 {
		return usagef("txn: neither a condition nor a change is given, as in 'chubbyctl txn --if-absent PATH --put PATH=VALUE'; see 'chubbyctl txn --help'")
	}
	conditions, input := 0, (*txnStep)(nil)
	changed := map[api.Path]*txnStep{}
	for _, s := range t.steps {
		if s.path.Cell() != t.cell() {
			return usagef("txn: --%s: %v is in another cell than %v; a transaction is of one", s.flag, s.path, t.steps[0].path)
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
	if changes := len(t.steps) - conditions; max(conditions, changes) > api.MaxTxnSteps {
		return usagef("txn: %d conditions (--if-...) and %d changes; a transaction has at most %d of each", conditions, changes, api.MaxTxnSteps)
	}
	return nil
}

// checkPipes rejects two values from one pipe, under any names, before reading: the second would be empty, or
// never come.
func (t *transaction) checkPipes(in io.Reader) error {
	var steps []*txnStep
	var pipes []fs.FileInfo
	for _, s := range t.steps {
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

// statSource returns the source of a value; nil if there is none, or it is unknown.
func (s *txnStep) statSource(in io.Reader) fs.FileInfo {
	var info fs.FileInfo
	err := fs.ErrNotExist
	switch f, isFile := in.(*os.File); {
	case s.source == "-" && isFile:
		info, err = f.Stat()
	case s.source != "-" && s.source != "":
		info, err = os.Stat(s.source)
	}
	if err != nil {
		return nil // reading it reports the error
	}
	return info
}

// readValues reads the values that are not on the command line, and rejects more than a transaction may have.
func (o *txnOptions) readValues(cmd *cobra.Command, t *transaction) error {
	size := 0
	for _, s := range t.steps {
		var err error
		switch s.source {
		case "":
		case "-":
			if s.value, err = o.readInput(cmd, s.source, s.path, fmt.Sprintf("value of %v", s.path)); err != nil {
				err = fmt.Errorf("--%s: %w", s.flag, err)
			}
			if err == nil && len(s.value) == 0 && context.Cause(cmd.Context()) == nil { // mostly the program before the pipe has failed
				err = usagef("txn: --%s of %v: nothing came from standard input; '--%s %s=' writes an empty file. Nothing was sent",
					s.flag, s.path, strings.TrimSuffix(s.flag, "-file"), escapedPath(s.path.String()))
			}
		default:
			s.value, err = o.readFile(cmd, s)
		}
		if err == nil {
			err = context.Cause(cmd.Context()) // the value is incomplete
		}
		if err != nil {
			return err
		}
		if size += len(s.path.String()) + len(s.value); size > api.MaxContents {
			return &api.Error{Code: api.TooLarge, Op: "txn", Path: s.path.String(), Message: fmt.Sprintf(
				"up to --%s of it, paths and values have together more than %d bytes (256 KiB), the most a transaction may have; keep large data elsewhere and its location here. Nothing was sent", s.flag, api.MaxContents)}
		}
	}
	return nil
}

// readFile reads a value from a local file, which may be a pipe without an end.
func (o *txnOptions) readFile(cmd *cobra.Command, s *txnStep) ([]byte, error) {
	return withDefaultInterrupts(o.globals, cmd, func() ([]byte, error) {
		f, err := os.Open(s.source)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", s.flag, err)
		}
		value, err := io.ReadAll(io.LimitReader(f, api.MaxContents+1))
		if err = cmp.Or(err, f.Close()); err != nil {
			return nil, fmt.Errorf("--%s: %w", s.flag, err)
		}
		return value, nil
	})
}
