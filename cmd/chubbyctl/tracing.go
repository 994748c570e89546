package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/chubbylock/chubby/internal/otlp"
)

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
