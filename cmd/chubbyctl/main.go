// Command chubbyctl is the command line of Chubby: it takes locks, runs commands under them, reads and writes a
// cell's files, and shows who holds what.
//
// Scripts depend on its names, flags, environment, JSON fields and exit codes; they do not change once shipped.
// Everything goes through the exported client library. This package has the options and the output of the
// verbs; internal/term writes to the terminal, and internal/supervise runs commands.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

func main() { os.Exit(runCommandLine()) }

func runCommandLine() int {
	unread := supervise.CatchBrokenPipes()
	ctx, stop := withInterrupts(context.Background())
	root, g := newRootCommand()
	g.stop = stop
	asked := make(chan struct{})
	g.asked = sync.OnceFunc(func() { close(asked) })
	g.noteInterrupt(ctx)
	out := term.NewOutlet(os.Stdout, asked)
	root.SetOut(out)
	root.SetErr(term.NewOutlet(os.Stderr, asked))
	defer func() { g.stop() }()
	err := runPlugin(root, os.Args[1:])
	if err == nil {
		var cmd *cobra.Command
		cmd, err = root.ExecuteContextC(ctx)
		ctx = cmd.Context() // a command may have caught interrupts again
	}
	err = unwritten(lastError(ctx, g.adviseOnCell(err)), out.Failure(), unread)
	if asked := formatAskedFor(os.Args[1:]); g.stderr == nil && asked.ForPrograms() {
		g.output = asked // cobra has not read the flags after the wrong one
	}
	g.printLast(root.ErrOrStderr(), err, ctx.Err() != nil)
	g.trace.end(ctx, err)
	return exitCode(err)
}

// interrupted is the cause of a context that a signal has cancelled.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "interrupted by a signal: " + i.signal.String() }

// catchInterrupts makes interrupts end a command's context again, in place of one that SIGHUP has ended.
func (g *globals) catchInterrupts(cmd *cobra.Command) {
	g.stop()
	ctx, stop := withInterrupts(context.WithoutCancel(cmd.Context()))
	g.stop = stop
	cmd.SetContext(ctx)
	g.noteInterrupt(ctx)
}

// noteInterrupt calls g.asked when a signal ends a context.
func (g *globals) noteInterrupt(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		if errors.As(context.Cause(ctx), new(interrupted)) {
			g.asked()
		}
	})
}

// withInterrupts returns a context that the first interrupt cancels. Then interrupts regain their default
// action, so that the second ends the process.
func withInterrupts(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(signals, supervise.Interrupts()...)
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(interrupted{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
		signal.Stop(signals)
	}
}
