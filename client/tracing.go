package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// traceparent is the header that names a call's trace (W3C Trace Context).
const traceparent = "traceparent"

// traceparentKey finds the traceparent of an attempt in its context; KeepAlives and other calls outside a
// trace have none.
type traceparentKey struct{}

func traceparentOf(ctx context.Context) string {
	text, _ := ctx.Value(traceparentKey{}).(string)
	return text
}

// traceparentFor is for frames.LinkConfig: nil if no call is traced.
func traceparentFor(cfg Config) func(context.Context) string {
	if cfg.Tracer == nil {
		return nil
	}
	return traceparentOf
}

func traceOptions(cfg Config) []grpc.DialOption {
	if cfg.Tracer == nil {
		return nil
	}
	with := func(ctx context.Context) context.Context {
		if text := traceparentOf(ctx); text != "" {
			return metadata.AppendToOutgoingContext(ctx, traceparent, text)
		}
		return ctx
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return next(with(ctx), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return next(with(ctx), desc, conn, method, options...)
		}),
	}
}

// untraced returns ctx without its span, for work after the call has ended.
func untraced(ctx context.Context, cfg Config) context.Context {
	if cfg.Tracer == nil {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), traceparentKey{}, "")
}

// startSpan starts a span of the library. It is called only with a Tracer.
func (d *dispatcher) startSpan(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return d.cfg.Tracer.Tracer("github.com/chubbylock/chubby/client").Start(ctx, name, options...)
}

// dispatchTraced is dispatchUntraced with a span for the call. The library's own repeated work has none.
func (d *dispatcher) dispatchTraced(ctx context.Context, k call) (outcome, error) {
	if k.class == classRenewal || k.class == classAudit {
		return d.dispatchUntraced(untraced(ctx, d.cfg), k)
	}
	attributes := []attribute.KeyValue{attribute.String("chubby.cell", d.cfg.Cell), attribute.String("chubby.path", k.path)}
	if k.session != nil {
		attributes = append(attributes, attribute.String("chubby.session", k.session.id.String()))
	}
	ctx, span := d.startSpan(ctx, "chubby "+k.op, trace.WithAttributes(attributes...))
	defer span.End()
	result, err := d.dispatchUntraced(ctx, k)
	endWith(span, err)
	if id := span.SpanContext(); err != nil && id.IsSampled() {
		var e *api.Error
		if errors.As(err, &e) && e.Trace == "" {
			told := *e
			told.Trace = id.TraceID().String()
			err = &told
		}
	}
	return result, err
}

// attemptTraced is an attempt with a span, the parent of the master's, if the call has one.
func (d *dispatcher) attemptTraced(ctx context.Context, t *target, attempt func(context.Context) error) error {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return attempt(ctx)
	}
	ctx, span := d.startSpan(ctx, "attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("server.address", t.address)))
	defer span.End()
	if span.SpanContext().IsSampled() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		ctx = context.WithValue(ctx, traceparentKey{}, carrier[traceparent])
	}
	err := attempt(ctx)
	endWith(span, t.explainError(err))
	return err
}

func endWith(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(attribute.String("chubby.code", api.CodeOf(err).String()))
		span.SetStatus(codes.Error, err.Error())
	}
}
