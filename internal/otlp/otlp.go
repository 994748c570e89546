// Package otlp sends the spans of a program to a collector, by the protocol of OpenTelemetry over gRPC.
//
// A program that makes spans never waits for the collector. Ended spans wait in a queue of limited length; those that find it
// full, or cannot be sent, are lost and counted.
//
// The caller says where the collector is. All other settings (certificates, headers, a time limit, attributes of the resource)
// come from the environment, by OpenTelemetry's names: OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_EXPORTER_OTLP_HEADERS and so on.
// OTEL_EXPORTER_OTLP_PROTOCOL cannot choose HTTP.
//
// Everything here may be called from any goroutine. An Exporter has the goroutines of OpenTelemetry's processor, for which Close
// waits.
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config configures an Exporter.
type Config struct {
	// Endpoint is http://HOST:PORT, or https://HOST:PORT with TLS.
	Endpoint string
	// Ratio is the recorded part, from 0 to 1, of traces that begin in this program. For others, their program decides.
	Ratio float64
	// Service is the name of the program, and Attributes describe it. The variables OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES override them.
	Service    string
	Attributes map[string]string
	// Logger gets a line for each batch that could not be sent; may be nil.
	Logger *slog.Logger
}

const (
	maxWaiting = 4096             // spans that have ended and were not sent yet
	maxBatch   = 512              // spans that are sent at a time
	batchPause = 2 * time.Second  // that a span waits for others, at most
	sendTime   = 10 * time.Second // for a batch
	maxText    = 4 << 10          // bytes of an attribute
)

// Endpoint returns the endpoint for traces in OpenTelemetry's variables; "" without one for gRPC, or if no traces are wanted.
func Endpoint() string {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "grpc")
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if protocol != "grpc" || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" || CheckEndpoint(endpoint) != nil {
		return ""
	}
	return endpoint
}

// CheckEndpoint says what is wrong with an endpoint.
func CheckEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return fmt.Errorf("%q is no collector: want http://HOST:PORT, or https://HOST:PORT with TLS, as in http://localhost:4317", text)
	}
	return nil
}

// Exporter makes spans, and sends them.
type Exporter struct {
	provider *sdktrace.TracerProvider
	queue    *queue
}

// New returns an Exporter, which does not connect yet. The caller must close it.
func New(ctx context.Context, cfg Config) (*Exporter, error) {
	if err := CheckEndpoint(cfg.Endpoint); err != nil {
		return nil, err
	}
	client, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTime,
	}))
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", cfg.Endpoint, err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", cfg.Service)}
	for key, value := range cfg.Attributes {
		attributes = append(attributes, attribute.String(key, value))
	}
	about, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	q := &queue{log: cfg.Logger}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(sent{client, q}, sdktrace.WithMaxQueueSize(maxWaiting), sdktrace.WithMaxExportBatchSize(maxBatch),
		sdktrace.WithBatchTimeout(batchPause), sdktrace.WithExportTimeout(sendTime))
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxText
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q), sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Ratio))))
	return &Exporter{provider: provider, queue: q}, nil
}

// Provider makes the spans.
func (e *Exporter) Provider() trace.TracerProvider { return e.provider }

// Lost returns how many spans were lost: because the queue was full, or because they could not be sent.
func (e *Exporter) Lost() uint64 { return e.queue.lost.Load() }

// Close sends waiting spans, until ctx ends. Spans that end later are lost.
func (e *Exporter) Close(ctx context.Context) error { return e.provider.Shutdown(ctx) }

// queue counts the spans that it drops. The processor below has a queue of the same length, and would drop without a count.
type queue struct {
	sdktrace.SpanProcessor
	log     *slog.Logger
	waiting atomic.Int64
	lost    atomic.Uint64
}

func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > maxWaiting {
		q.waiting.Add(-1)
		q.lost.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// sent is the exporter, seen by the processor.
type sent struct {
	sdktrace.SpanExporter
	queue *queue
}

// ExportSpans reports no errors: they would go to a logger that belongs to the whole process.
func (s sent) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer s.queue.waiting.Add(-int64(len(spans)))
	if err := s.SpanExporter.ExportSpans(ctx, spans); err != nil {
		s.queue.lost.Add(uint64(len(spans)))
		if s.queue.log != nil {
			s.queue.log.WarnContext(ctx, "spans could not be sent to the collector, and are lost", "spans", len(spans), "error", err)
		}
	}
	return nil
}
