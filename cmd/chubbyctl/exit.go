package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// The exit codes, which scripts depend on. A command run under a lock adds its
// own, and 128+n if signal n ended it.
const (
	exitFailed      = 1   // any failure without a code of its own
	exitUsage       = 2   // the command line was not understood
	exitMismatch    = 3   // sequencer check, --if-sequencer: not valid; --if-generation: another generation; txn: a condition does not hold; lint: something was found
	exitOverLimit   = 4   // drill: longer than --limit
	exitUnavailable = 69  // no master could be reached within --timeout, or it is of an older version, which does not know what was asked for
	exitLost        = 74  // the lock was lost while the command ran
	exitHeld        = 75  // --try: held by another, or delayed; --detect-deadlock: a deadlock
	exitUncertain   = 76  // no answer came within --timeout: the change may have been made, or a part of it
	exitDenied      = 77  // permission denied
	exitWaited      = 124 // --wait ran out
	exitBySignal    = 128 // plus the number of the signal
)

// exitError gives an error, or a command that ended by itself, its exit code.
type exitError struct {
	code int
	err  error // nil if there is nothing to say
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a command line that was not understood.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// arguments makes the error of a cobra check a usageError, which says what is wanted.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		_, wanted, takes := strings.Cut(cmd.Use, " ")
		if !takes {
			return usagef("%s: it takes no arguments; %q is not expected; see '%s --help'", name, args[0], cmd.CommandPath())
		}
		said := "an argument is missing"
		for n := range args {
			if check(cmd, args[:n]) == nil {
				said = fmt.Sprintf("%q is not expected", args[n])
			}
		}
		return usagef("%s: %s; want '%s %s'; see '%s --help'", name, said, cmd.CommandPath(), wanted, cmd.CommandPath())
	}
}

// exitCode returns the exit code of an error: its own, or that of its kind.
func exitCode(err error) int {
	var (
		own    *exitError
		usage  usageError
		notRun *supervise.NotRunError
		signal interrupted
	)
	unavailable := exitUnavailable
	if errors.As(err, new(partlyDone)) {
		unavailable = exitUncertain
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &notRun):
		return notRun.Code
	case errors.As(err, &signal):
		return exitBySignal + supervise.Number(signal.signal)
	case mayBeDone(err):
		return exitUncertain
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.OlderMaster):
		return unavailable
	}
	switch api.CodeOf(err) {
	case api.InvalidPath, api.InvalidArgument:
		return exitUsage
	case api.GenerationMismatch:
		return exitMismatch
	case api.Deadlock:
		return exitHeld
	case api.Unavailable, api.NotMaster, api.StaleEpoch, api.DeadlineExceeded:
		return unavailable
	case api.PermissionDenied, api.Unauthenticated:
		return exitDenied
	}
	return exitFailed
}

// interruptOr returns the signal that ended ctx, if one did, in place of the error that an
// operation made of that. An error that has an exit code of its own is returned as it is.
func interruptOr(ctx context.Context, err error) error {
	var (
		own    *exitError
		signal interrupted
	)
	if err != nil && !errors.As(err, &own) && errors.As(context.Cause(ctx), &signal) {
		return signal
	}
	return err
}

// lastError is interruptOr for what a command ends with. That a change may have been made, or a part of it, is said along with the
// signal: no other word of it comes.
func lastError(ctx context.Context, err error) error {
	last := interruptOr(ctx, err)
	switch {
	case errors.As(err, new(partlyDone)) && errors.Is(err, last):
		return err // it says both
	case mayBeDone(err) && !errors.Is(last, api.Uncertain):
		return fmt.Errorf("%w; %w", last, err)
	}
	return last
}

// mayBeDone reports whether an error says that a change may or may not have been made. That a file was perhaps created for its
// lock, or to be read, changes nothing of what the command was for.
func mayBeDone(err error) bool {
	var e *api.Error
	if !errors.As(err, &e) {
		return errors.Is(err, api.Uncertain)
	}
	return e.Code == api.Uncertain && (e.Op != "open" || errors.As(err, new(creation)))
}

// creation is an error of a call that opens a node, and creates it. What only opens one changes nothing, also if it is not known
// whether it was done.
type creation struct{ error }

func (c creation) Unwrap() error { return c.error }

// errorFields is an error as programs are shown it.
type errorFields struct {
	Code       string         `json:"code"`
	Message    string         `json:"message"`
	Op         string         `json:"op,omitempty"`
	Path       string         `json:"path,omitempty"`
	Replica    string         `json:"replica,omitempty"`
	Master     string         `json:"master,omitempty"`
	Cell       string         `json:"cell,omitempty"`
	Trace      string         `json:"trace,omitempty"`
	Request    string         `json:"request,omitempty"`
	Holders    []holderFields `json:"holders,omitempty"`
	RemainingS float64        `json:"remaining_s,omitempty"`
	Current    api.Generation `json:"current,omitempty"`
	Cycle      []cycleFields  `json:"cycle,omitempty"`
	Exit       int            `json:"exit"`
}

// cycleFields is a step of a deadlock.
type cycleFields struct {
	Session string `json:"session"`
	Owner   string `json:"owner,omitempty"`
	Path    string `json:"path"`
	For     string `json:"for"`
}

// printError prints an error in the format of -o. It prints nothing for a CMD that ended with
// an exit code of its own.
func (g *globals) printError(w io.Writer, err error) {
	var own *exitError
	if errors.As(err, &own) && own.err == nil {
		return
	}
	if g.json() {
		_ = g.output.Print(w, map[string]errorFields{"error": newErrorFields(err)}) // there is nowhere to report it
		return
	}
	for _, one := range splitJoined(err) {
		term.Complain(w, one.Error())
		if e := (*api.Error)(nil); g.verbose && errors.As(one, &e) && e.Request != "" {
			fmt.Fprintf(w, "chubbyctl: request=%s in the logs of the replicas\n", e.Request)
		}
	}
}

// printLast prints an error, if there is one, as the last thing that chubbyctl does. asked is
// whether a signal has asked for the end.
func (g *globals) printLast(w io.Writer, err error, asked bool) {
	s := g.stderr
	if s == nil { // the command line was not understood
		s = term.NewSpeaker(term.Bare(w))
	}
	if err != nil {
		g.printError(s, err)
	}
	s.Finish(asked, supervise.Interrupts()...)
}

// splitJoined takes apart errors that were joined, so that each has a line.
func splitJoined(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // an error that wraps several in one sentence stays whole
	if !ok || !strings.Contains(err.Error(), "\n") {
		return []error{err}
	}
	return joined.Unwrap()
}

func newErrorFields(err error) errorFields {
	f := errorFields{Code: codeName(err), Message: err.Error(), Exit: exitCode(err)}
	var e *api.Error
	if errors.As(err, &e) {
		f.Op, f.Path, f.Replica, f.Master, f.Cell, f.Trace = e.Op, e.Path, e.Replica, e.Master, e.Cell, e.Trace
		f.Request = e.Request
		f.RemainingS, f.Current = term.Seconds(e.Remaining), e.Current
		f.Holders = newHolderList(e.Holders)
		for _, w := range e.Cycle {
			f.Cycle = append(f.Cycle, cycleFields{Session: w.Session.String(), Owner: w.Owner, Path: w.Path, For: w.For.String()})
		}
	}
	return f
}

// codeName returns the code of an error for programs: that of an error of the cell, or the
// nearest one for an error of this program.
func codeName(err error) string {
	var (
		usage  usageError
		notRun *supervise.NotRunError
		signal interrupted
		known  *api.Error
	)
	code := api.CodeOf(err)
	switch {
	case errors.As(err, &usage), errors.As(err, &notRun):
		code = api.InvalidArgument
	case errors.As(err, &signal) && !errors.Is(err, api.Uncertain):
		code = api.Cancelled
	case !errors.As(err, &known) && errors.Is(err, context.DeadlineExceeded):
		code = api.DeadlineExceeded
	}
	return code.String()
}

// partlyDone is the error of a step before which others were done: not everything is as it was, also if the step itself changed nothing.
type partlyDone struct{ error }

func (p partlyDone) Unwrap() error { return p.error }

// afterSteps returns the error of a step. done says whether steps before it may have changed something.
func afterSteps(done bool, err error) error {
	if err == nil || !done {
		return err
	}
	return partlyDone{err}
}
