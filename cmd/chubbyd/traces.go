package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/otlp"
)

type tracing struct {
	endpoint string // empty: nowhere
	ratio    float64
}

// defaultTraceRatio is small enough for a busy cell. Calls that clients trace are added.
const defaultTraceRatio = 0.001

// flushTime is how long a stopped replica may send its last spans.
const flushTime = 2 * time.Second

// install makes the replica trace calls, if configured. stop sends the rest once the replica has stopped.
func (t tracing) install(ctx context.Context, replica *cell.Config, log *slog.Logger) (stop func(context.Context), err error) {
	if t.endpoint == "" {
		return func(context.Context) {}, nil
	}
	out, err := otlp.New(ctx, otlp.Config{
		Endpoint: t.endpoint, Ratio: 1, Service: "chubbyd", Logger: log,
		Attributes: map[string]string{"service.instance.id": replica.ID, "service.namespace": replica.Cell, "service.version": cell.Version()},
	})
	if err != nil {
		return nil, fmt.Errorf("trace-endpoint: %w", err)
	}
	replica.Tracing = cell.TraceConfig{Provider: out.Provider(), Ratio: t.ratio, Lost: out.Lost}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := out.Close(ctx); err != nil {
			log.WarnContext(ctx, "the last spans were not sent", "error", err)
		}
	}, nil
}
