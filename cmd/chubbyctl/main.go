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
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/otlp"
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
	noteInterrupt(ctx, g)
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
	err = unwritten(lastError(ctx, adviseOnCell(g, err)), out.Failure(), unread)
	if asked := formatAskedFor(os.Args[1:]); g.stderr == nil && asked.ForPrograms() {
		g.output = asked // cobra has not read the flags after the wrong one
	}
	g.printLast(root.ErrOrStderr(), err, ctx.Err() != nil)
	g.trace.end(ctx, err)
	return exitCode(err)
}

// verb completes a command with its flags and its action.
type verb = func(g *globals, cmd *cobra.Command)

type globals struct {
	output    term.Format
	timeout   time.Duration
	servers   []string
	cell      string // of paths without a cell, if given; see defaultCell
	as        string
	tls       client.TLSFiles
	tokenFile string
	verbose   bool
	quiet     bool // of verbs that run a command: print only what needs action
	trace     tracing

	stop   func()               // stops catching interrupts; nil if they are not caught
	asked  func()               // called when a signal requests the end; set with stop
	stderr *term.Speaker        // for notices while an operation waits; may be nil
	adapt  func(*client.Config) // for tests, with another network and clock; may be nil
}

func (g *globals) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(&g.output), "output", "o", string(term.Text), "text, wide (text of which nothing is left out), json (one object per line, errors too), or yaml (the same fields, a document each)")
	flags.DurationVar(&g.timeout, "timeout", 15*time.Second, "how long an operation on the cell may take")
	flags.StringSliceVar(&g.servers, "servers", nil, "the cell's replicas, host:port,...")
	flags.StringVar(&g.cell, "cell", "", "the default `CELL`: of paths that do not begin with /ls/CELL, and where none is named")
	flags.StringVar(&g.as, "as", "", "the principal to act as, where the cell takes a client's word for it")
	flags.StringVar(&g.tls.CA, "cacert", "", "who signs the certificates of the servers, a file in PEM")
	flags.StringVar(&g.tls.Cert, "cert", "", "the certificate that says who you are, a file in PEM")
	flags.StringVar(&g.tls.Key, "key", "", "the key of --cert, a file in PEM")
	flags.StringVar(&g.tokenFile, "token-file", "", "a file with the token that says who you are, instead of --cert")
	flags.StringVar(&g.trace.endpoint, "trace-endpoint", "", "where a trace of the command is sent, by OTLP over gRPC: http://HOST:PORT, or https://HOST:PORT with TLS")
	flags.BoolVarP(&g.verbose, "verbose", "v", false, "say more, on standard error")
}

func (g *globals) validate() error {
	switch {
	case !g.output.IsValid():
		return usagef("-o %q: want text, wide, json or yaml", g.output)
	case g.cell != "" && !api.ValidCell(g.cell):
		return usagef("--cell %q is not a cell's name: want letters, digits, '-', '_' and '.', as in %s", g.cell, api.LocalCell)
	case (g.tls.Cert == "") != (g.tls.Key == ""):
		return usagef("--cert and --key are needed together")
	case g.timeout <= 0:
		return usagef("--timeout %v: want a positive duration, as in 15s", g.timeout)
	}
	return nil
}

// json reports whether the output is for programs: JSON, or YAML with the same fields.
func (g *globals) json() bool { return g.output.ForPrograms() }

// did reports a change: to programs always, to people with -v.
func (g *globals) did(out, remarks io.Writer, fields any, format string, args ...any) error {
	if g.json() {
		return g.output.Print(out, fields)
	}
	if g.verbose {
		term.Remark(remarks, format, args...)
	}
	return nil
}

func (g *globals) notice(w io.Writer, text string) {
	if !g.quiet {
		g.output.Notice(w, text)
	}
}

// tracing is the trace of a command with its calls; zero: none.
type tracing struct {
	endpoint string // --trace-endpoint
	out      *otlp.Exporter
	span     trace.Span
}

// flushTime is how long an ended command may send its spans.
const flushTime = time.Second

// begin begins a command's trace, if requested, and returns its context.
func (t *tracing) begin(ctx context.Context, cmd *cobra.Command) (context.Context, error) {
	endpoint := t.endpoint
	if endpoint == "" {
		endpoint = otlp.Endpoint()
	}
	if endpoint == "" {
		return ctx, nil
	}
	out, err := otlp.New(ctx, otlp.Config{
		Endpoint: endpoint, Ratio: 1, Service: "chubbyctl", Attributes: map[string]string{"service.version": builtFrom().Version},
	})
	if err != nil {
		return ctx, usagef("--trace-endpoint: %v", err)
	}
	t.out = out
	ctx, t.span = out.Provider().Tracer("github.com/chubbylock/chubby/cmd/chubbyctl").Start(ctx, cmd.CommandPath())
	return ctx, nil
}

func (t *tracing) provider() trace.TracerProvider {
	if t.out == nil {
		return nil
	}
	return t.out.Provider()
}

// end ends and sends the trace. What cannot be sent in time is lost; the command does not fail.
func (t *tracing) end(ctx context.Context, err error) {
	if t.out == nil {
		return
	}
	if err != nil {
		t.span.SetStatus(codes.Error, codeName(err))
	}
	t.span.End()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	_ = t.out.Close(ctx)
}

// interrupted is the cause of a context that a signal has cancelled.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "interrupted by a signal: " + i.signal.String() }

// catchInterrupts makes interrupts end a command's context again, in place of one that SIGHUP has ended.
func catchInterrupts(g *globals, cmd *cobra.Command) {
	g.stop()
	ctx, stop := withInterrupts(context.WithoutCancel(cmd.Context()))
	g.stop = stop
	cmd.SetContext(ctx)
	noteInterrupt(ctx, g)
}

// noteInterrupt calls g.asked when a signal ends a context.
func noteInterrupt(ctx context.Context, g *globals) {
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
