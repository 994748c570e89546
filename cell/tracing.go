package cell

import (
	"context"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceConfig configures the spans of calls (OpenTelemetry).
type TraceConfig struct {
	// Provider makes the spans. It must not block; its spans may wait in a bounded queue. It may decline a
	// call. nil: no call is traced.
	Provider trace.TracerProvider
	// Ratio is the traced part, from 0 to 1, of the calls whose clients have not decided. Clients decide for
	// the others.
	Ratio float64
	// Lost returns the number of spans lost so far, for the metric; may be nil.
	Lost func() uint64
}

func (c TraceConfig) lost() float64 {
	if c.Lost == nil {
		return 0
	}
	return float64(c.Lost())
}

// maxTraced limits the traced calls a second on each replica: a client can request it with every call.
const maxTraced = 1000

// The attributes of spans. docs/monitoring.md lists them.
const (
	attrReplica  = attribute.Key("chubby.replica")
	attrSession  = attribute.Key("chubby.session")
	attrRequest  = attribute.Key("chubby.request")
	attrPath     = attribute.Key("chubby.path")
	attrCode     = attribute.Key("chubby.code")
	attrMode     = attribute.Key("chubby.lock.mode")
	attrPlace    = attribute.Key("chubby.queue.place")
	attrWaiting  = attribute.Key("chubby.queue.waiting")
	attrHolders  = attribute.Key("chubby.lock.holders")
	attrPaths    = attribute.Key("chubby.paths")
	attrSlow     = attribute.Key("chubby.slow.sessions")
	attrCommands = attribute.Key("chubby.entry.commands")
)

// tracer makes spans of calls and of their steps in the master.
type tracer struct {
	spans   trace.Tracer
	ratio   float64
	replica string
	clock   session.Clock

	mu     sync.Mutex // guards what follows
	second session.Instant
	begun  int // since then
}

var _ wire.Tracer = (*tracer)(nil)

func newTracer(cfg Config) wire.Tracer {
	if cfg.Tracing.Provider == nil {
		return nil
	}
	return &tracer{spans: cfg.Tracing.Provider.Tracer("github.com/chubbylock/chubby/cell"), ratio: cfg.Tracing.Ratio, replica: cfg.ID, clock: cfg.Clock}
}

// Begin implements wire.Tracer. It declines a call before it makes anything: the library needs a microsecond
// for that.
func (t *tracer) Begin(ctx context.Context, method, parent string) wire.Trace {
	if parent != "" && !isSampled(parent) {
		return nil
	}
	if parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
	}
	if (parent == "" || !trace.SpanContextFromContext(ctx).IsRemote()) && t.ratio < 1 && rand.Float64() >= t.ratio {
		return nil // no client has decided
	}
	ctx, span := t.spans.Start(ctx, "chubby.Chubby/"+path.Base(method), trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() || !t.admit() {
		return nil // a span that is not ended is not exported
	}
	return &callTrace{spans: t.spans, ctx: ctx, span: span, replica: t.replica, wall: traceClock(), began: t.clock()}
}

// isSampled reports whether a client traces its call: the lowest bit of the last two hexadecimal digits (W3C
// Trace Context, section 3.2.2.5).
func isSampled(parent string) bool {
	flags, err := strconv.ParseUint(parent[max(0, len(parent)-2):], 16, 8)
	return err == nil && flags&1 != 0
}

// admit reports whether another call may be traced in this second.
func (t *tracer) admit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.clock(); now.Sub(t.second) >= time.Second {
		t.second, t.begun = now, 0
	}
	t.begun++
	return t.begun <= maxTraced
}

// callTrace is the span of a call, for the goroutine that serves it.
type callTrace struct {
	spans   trace.Tracer
	ctx     context.Context //nolint:containedctx // that has the span
	span    trace.Span
	replica string

	wall  time.Time // when it began, and
	began session.Instant
}

var _ wire.Trace = (*callTrace)(nil)

func (c *callTrace) ID() string { return c.span.SpanContext().TraceID().String() }

func (c *callTrace) End(about wire.TraceSubject, code api.Code) {
	attributes := []attribute.KeyValue{attrReplica.String(c.replica), attrCode.String(code.String())}
	if about.Session != 0 {
		attributes = append(attributes, attrSession.String(about.Session.String()))
	}
	if about.Request != 0 {
		attributes = append(attributes, attrRequest.String(about.Request.String()))
	}
	if about.Path != "" {
		attributes = append(attributes, attrPath.String(spanText(about.Path)))
	}
	c.span.SetAttributes(attributes...)
	if code != api.OK {
		c.span.SetStatus(codes.Error, code.String())
	}
	c.span.End()
}

func (c *callTrace) Step(s steps.Step) { c.step(c.ctx, s) }

func (c *callTrace) step(ctx context.Context, s steps.Step) {
	ctx, span := c.spans.Start(ctx, string(s.Kind), trace.WithTimestamp(c.at(s.From)), trace.WithAttributes(attributesOf(s)...))
	for _, part := range s.Parts {
		c.step(ctx, part)
	}
	if s.Err != nil {
		span.SetStatus(codes.Error, api.CodeOf(s.Err).String())
	}
	span.End(trace.WithTimestamp(c.at(s.To)))
}

// at returns the wall time of a moment of the replica's clock, for people.
func (c *callTrace) at(moment session.Instant) time.Time { return c.wall.Add(moment.Sub(c.began)) }

func attributesOf(s steps.Step) (list []attribute.KeyValue) {
	switch s.Kind {
	case steps.Queue:
		list = append(list, attrMode.String(s.Mode.String()))
		if s.Place > 0 {
			list = append(list, attrPlace.Int(s.Place), attrWaiting.Int(s.Waiting), attrHolders.StringSlice(sessionsOf(s.Holders)))
		}
	case steps.Caches:
		list = append(list, attrPaths.String(spanText(strings.Join(s.Names, " "))))
		if len(s.Slow) > 0 {
			list = append(list, attrSlow.StringSlice(sessionsOf(s.Slow)))
		}
	case steps.Entry:
		list = append(list, attrCommands.Int(s.Commands))
	}
	return list
}

// spanText cuts a client's text at a whole character: a message with a broken one is rejected, with all its
// spans.
func spanText(text string) string { return strings.ToValidUTF8(cutText(text), "") }

func sessionsOf(ids []api.SessionID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = id.String()
	}
	return list
}
