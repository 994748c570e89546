// Command chubbyd runs the replicas of a Chubby cell: one (serve), or for trials and development a whole cell
// on this machine (dev).
//
// It only reads settings, starts package cell and reports. A replica that stops by itself ends the process with
// a message and exit code 1, never with a panic, so that a supervisor can restart it; with exit code 78 if a
// restart does not help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/helptext"
)

func main() {
	relaxTimers(os.Args)
	os.Exit(runCommandLine())
}

func runCommandLine() int {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	// The first signal asks for an orderly end. Then signals regain their default action, so that the second
	// ends the process.
	context.AfterFunc(ctx, stop)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a closed pipe is an error, see exitUnread
	root := newRootCommand()
	out := helptext.NewOutput(os.Stdout)
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	failed := out.Failure()
	if errors.Is(failed, syscall.EPIPE) && (err == nil || errors.Is(err, failed)) {
		return exitUnread
	}
	if err == nil && failed != nil {
		err = fmt.Errorf("standard output could not be written: %w", failed)
	}
	if err != nil {
		printLast(root.ErrOrStderr(), err)
		return exitCode(err)
	}
	return 0
}

// stopSignals are the signals that ask for an orderly end, besides SIGHUP; see onHangup. They exclude those that
// this process was started to ignore (a script's background).
func stopSignals() []os.Signal {
	interactive := slices.DeleteFunc([]os.Signal{os.Interrupt}, signal.Ignored)
	return append(interactive, syscall.SIGTERM)
}

const lastBound = 2 * time.Second

// printLast writes the last message, but not for long: a process whose replica has failed must end, so that it
// can be restarted.
func printLast(out io.Writer, err error) {
	written := make(chan struct{})
	go func() { // ends at the latest with the process
		defer close(written)
		fmt.Fprintln(out, "chubbyd:", err)
	}()
	select {
	case <-written:
	case <-time.After(lastBound):
	}
}

// The exit codes other than 0. exitRefused is EX_CONFIG of sysexits.h: a replica must not run with its
// configuration, data or members. A systemd unit needs RestartPreventExitStatus=78.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 78

	// exitUnread is the code of an end by SIGPIPE: the reader has gone (chubbyd config show | head). It is no
	// real one, which runuser and sudo report on the terminal.
	exitUnread = 128 + int(syscall.SIGPIPE)
)

// endsByPipe makes a running command end by SIGPIPE, as other programs do, when its log loses its reader.
func endsByPipe() { signal.Reset(syscall.SIGPIPE) }

// exitCodes explains the exit codes.
func exitCodes() map[int]string {
	return map[int]string{
		0:           "stopped in order, by SIGTERM or SIGINT, or by SIGHUP from its terminal; or done",
		exitFailed:  "any other failure, such as a disk that failed: starting it again may help",
		exitUsage:   "the command line was not understood",
		exitRefused: "the replica must not run with the configuration, on the data or with the members that it has: starting it again does not help",
		exitUnread:  "nobody reads what is printed any more (chubbyd config show | head)",
	}
}

func exitCode(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	var faulty configError
	if errors.Is(err, cell.ErrRefused) || errors.As(err, &faulty) {
		return exitRefused
	}
	return exitFailed
}

// configError is the error of a faulty configuration, which somebody has to edit.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }
