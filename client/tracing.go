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

type tracing struct{ provider trace.TracerProvider }

func tracesOf(c Config) tracing { return tracing{c.Tracer} }

// traceparentOf is for frames.LinkConfig: nil if no call is traced.
func (c tracing) traceparentOf() func(context.Context) string {
	if c.provider == nil {
		return nil
	}
	return traceparentOf
}

func (c tracing) traceOptions() []grpc.DialOption {
	if c.provider == nil {
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
func (c tracing) untraced(ctx context.Context) context.Context {
	if c.provider == nil {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), traceparentKey{}, "")
}

// spans makes the spans of a client. It is called only with a Tracer.
func (c tracing) spans() trace.Tracer {
	return c.provider.Tracer("github.com/chubbylock/chubby/client")
}

// dispatchTraced is dispatchUntraced with a span for the call. The library's own repeated work has none.
func (d *dispatcher) dispatchTraced(ctx context.Context, k call) (outcome, error) {
	if k.class == classRenewal || k.class == classAudit {
		return d.dispatchUntraced(tracesOf(d.cfg).untraced(ctx), k)
	}
	attributes := []attribute.KeyValue{attribute.String("chubby.cell", d.cfg.Cell), attribute.String("chubby.path", k.path)}
	if k.session != nil {
		attributes = append(attributes, attribute.String("chubby.session", k.session.id.String()))
	}
	ctx, span := tracesOf(d.cfg).spans().Start(ctx, "chubby "+k.op, trace.WithAttributes(attributes...))
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
	ctx, span := tracesOf(d.cfg).spans().Start(ctx, "attempt", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("server.address", t.address)))
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
