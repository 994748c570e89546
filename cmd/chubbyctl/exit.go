package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// The exit codes; scripts depend on them. A command under a lock adds its own, and 128+n if signal n ended it.
const (
	exitFailed      = 1   // any failure without its own code
	exitUsage       = 2   // invalid command line
	exitMismatch    = 3   // sequencer check, --if-sequencer: invalid; --if-generation: another generation; txn: a condition fails; lint: findings
	exitOverLimit   = 4   // drill: longer than --limit
	exitUnavailable = 69  // no master answered within --timeout, or an older version does not know the call
	exitLost        = 74  // the lock was lost while the command ran
	exitHeld        = 75  // --try: held by another, or delayed; --detect-deadlock: a deadlock
	exitUncertain   = 76  // no answer within --timeout: all or a part of the change may have happened
	exitDenied      = 77  // permission denied
	exitWaited      = 124 // --wait ran out
	exitBySignal    = 128 // plus the signal's number
)

// exitError gives an error, or a command that ended by itself, its exit code.
type exitError struct {
	code int
	err  error // nil if there is nothing to print
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// arguments turns the error of a cobra check into a usageError that says what is expected.
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

// exitCode returns an error's exit code: its own, or its kind's.
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

// interruptOr returns the signal that ended ctx, if any, instead of the resulting error. It keeps an error with
// its own exit code.
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

// lastError is interruptOr for a command's last error. It adds to the signal that all or a part of a change may
// have happened: nothing else reports it.
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

// mayBeDone reports whether an error says that a change may or may not have happened. That a file was perhaps
// created for its lock, or to be read, does not count.
func mayBeDone(err error) bool {
	var e *api.Error
	if !errors.As(err, &e) {
		return errors.Is(err, api.Uncertain)
	}
	return e.Code == api.Uncertain && (e.Op != "open" || errors.As(err, new(creation)))
}

// creation is an error of a call that opens and creates a node. A call that only opens one changes nothing,
// even if its outcome is unknown.
type creation struct{ error }

func (c creation) Unwrap() error { return c.error }

// printError prints an error in the format of -o; nothing for a CMD that ended with its own exit code.
func (g *globals) printError(w io.Writer, err error) {
	var own *exitError
	if errors.As(err, &own) && own.err == nil {
		return
	}
	if g.json() {
		_ = g.output.Print(w, term.Fields{"error", errorFields(err)}) // there is nowhere to report it
		return
	}
	for _, one := range splitJoined(err) {
		term.Complain(w, one.Error())
		if e := (*api.Error)(nil); g.verbose && errors.As(one, &e) && e.Request != "" {
			fmt.Fprintf(w, "chubbyctl: request=%s in the logs of the replicas\n", e.Request)
		}
	}
}

// printLast prints the error, if any, as chubbyctl's last output. asked says whether a signal requested the
// end.
func (g *globals) printLast(w io.Writer, err error, asked bool) {
	s := g.stderr
	if s == nil { // the command line was invalid
		s = term.NewSpeaker(term.Bare(w))
	}
	if err != nil {
		g.printError(s, err)
	}
	s.Finish(asked, supervise.Interrupts()...)
}

// splitJoined splits joined errors, so that each has a line.
func splitJoined(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // an error that wraps several in one sentence stays whole
	if !ok || !strings.Contains(err.Error(), "\n") {
		return []error{err}
	}
	return joined.Unwrap()
}

func errorFields(err error) term.Fields {
	f := term.Fields{"code", codeName(err), "message", err.Error()}
	step := func(w api.Wait) term.Fields {
		return append(term.Fields{"session", w.Session.String()}.With("owner", w.Owner), "path", w.Path, "for", w.For.String())
	}
	var e *api.Error
	if errors.As(err, &e) {
		f = f.With("op", e.Op).With("path", e.Path).With("replica", e.Replica).With("master", e.Master).With("cell", e.Cell).
			With("trace", e.Trace).With("request", e.Request).With("holders", term.Each(e.Holders, holderFields)).
			With("remaining_s", term.Seconds(e.Remaining)).With("current", e.Current).With("cycle", term.Each(e.Cycle, step))
	}
	return append(f, "exit", exitCode(err))
}

// codeName returns an error's code for programs: the cell's, or the nearest for an error of this program.
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

// partlyDone is the error of a step after others were done: something has changed, even if this step changed
// nothing.
type partlyDone struct{ error }

func (p partlyDone) Unwrap() error { return p.error }

// afterSteps returns a step's error. done says whether earlier steps may have changed something.
func afterSteps(done bool, err error) error {
	if err == nil || !done {
		return err
	}
	return partlyDone{err}
}

// unwritten returns how chubbyctl ends after a command returned err. failed is the first error of writing to
// standard output, or nil: a partial answer must not look complete. If the reader has gone (chubbyctl ls |
// head), chubbyctl ends like a program killed by SIGPIPE, silently and with the exit code unread; without
// SIGPIPE on the system, unread is 0.
func unwritten(err, failed error, unread int) error {
	var own *exitError
	switch {
	case failed == nil, err != nil && !errors.Is(err, failed) && !errors.As(err, &own):
		return err // it says more than the write error
	case errors.As(err, &own) && own.err != nil:
		return err
	case errors.Is(failed, syscall.EPIPE) && unread != 0:
		return &exitError{code: unread}
	}
	code := exitFailed
	switch {
	case own != nil:
		code = own.code
	case err != nil:
		failed = err // it may say what was not done because of it
	}
	return &exitError{code, fmt.Errorf("the answer could not be written to standard output: %w", failed)}
}

func explanation(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}
