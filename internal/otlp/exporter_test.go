package otlp

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// collector takes spans, refuses them, or does not answer.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	taken  atomic.Int64
	refuse bool
	wait   chan struct{} // nil: it answers at once
}

func (c *collector) Export(ctx context.Context, q *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	if c.wait != nil {
		select {
		case <-c.wait:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if c.refuse {
		return nil, status.Error(codes.InvalidArgument, "none of that")
	}
	for _, r := range q.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			c.taken.Add(int64(len(s.GetSpans())))
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// sendTo returns an exporter to a collector, which serves until the test ends.
func sendTo(t *testing.T, c *collector) *Exporter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, done := grpc.NewServer(), make(chan error, 1)
	collectorpb.RegisterTraceServiceServer(s, c)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	e, err := New(t.Context(), Config{Endpoint: "http://" + l.Addr().String(), Ratio: 1, Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *Exporter) make(n int) {
	for range n {
		_, span := e.Provider().Tracer("test").Start(context.Background(), "span")
		span.End()
	}
}

// Spans that have ended are sent before Close returns.
func TestSpansAreSent(t *testing.T) {
	c := &collector{}
	e := sendTo(t, c)
	e.make(maxWaiting / 2)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.taken.Load(); got != maxWaiting/2 || e.Lost() != 0 {
		t.Errorf("the collector has %d spans, and %d are lost", got, e.Lost())
	}
}

// A collector that does not answer delays nobody: spans wait in a queue of bounded length, and those that find it full are lost and
// counted. Close does not wait longer than it is told to.
func TestSlowCollector(t *testing.T) {
	c := &collector{wait: make(chan struct{})}
	e := sendTo(t, c)
	e.make(3 * maxWaiting)
	if lost := e.Lost(); lost != 2*maxWaiting {
		t.Errorf("%d of %d spans are lost, want %d", lost, 3*maxWaiting, 2*maxWaiting)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = e.Close(ctx) // it says that it was not in time
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	close(c.wait)
}

// Spans that a collector does not take are lost and counted.
func TestRefusingCollector(t *testing.T) {
	e := sendTo(t, &collector{refuse: true})
	e.make(100)
	if err := e.Close(t.Context()); err != nil || e.Lost() != 100 {
		t.Errorf("%d of 100 spans are lost (%v)", e.Lost(), err)
	}
}

func TestEndpoint(t *testing.T) {
	for text, good := range map[string]bool{
		"http://localhost:4317": true, "https://[::1]:4317": true, "localhost:4317": false, "http://localhost": false, "ftp://localhost:1": false, "": false, "http://:4317": false,
	} {
		if err := CheckEndpoint(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317")
	if got := Endpoint(); got != "http://all:4317" {
		t.Errorf("the endpoint is %q", got)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317")
	if got := Endpoint(); got != "http://traces:4317" {
		t.Errorf("the endpoint of traces is %q", got)
	}
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := Endpoint(); got != "" {
				t.Errorf("with %s=%s the endpoint is %q", name, value, got)
			}
		})
	}
}
