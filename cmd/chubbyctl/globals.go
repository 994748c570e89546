package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/otlp"
)

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

func (t *tracing) id() string {
	if t.span == nil {
		return ""
	}
	return t.span.SpanContext().TraceID().String()
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
