package e2e

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector takes spans as any collector of OpenTelemetry does, and keeps them.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	url string

	mu    sync.Mutex // guards spans
	spans []sentSpan
}

// sentSpan is a span, and which program has sent it.
type sentSpan struct {
	*tracepb.Span
	service string
}

// newCollector serves until the test ends.
func newCollector(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, s, done := &collector{url: "http://" + l.Addr().String()}, grpc.NewServer(), make(chan error, 1)
	collectorpb.RegisterTraceServiceServer(s, c)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Export implements collectorpb.TraceServiceServer.
func (c *collector) Export(_ context.Context, q *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := text(r.GetResource().GetAttributes(), "service.name")
		for _, s := range r.GetScopeSpans() {
			for _, one := range s.GetSpans() {
				c.spans = append(c.spans, sentSpan{one, service})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a trace.
func (c *collector) of(trace string) []sentSpan {
	return c.which(func(s sentSpan) bool { return hex.EncodeToString(s.GetTraceId()) == trace })
}

// except returns the spans of all other traces.
func (c *collector) except(trace string) []sentSpan {
	return c.which(func(s sentSpan) bool { return hex.EncodeToString(s.GetTraceId()) != trace })
}

func (c *collector) which(is func(sentSpan) bool) (list []sentSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if is(s) {
			list = append(list, s)
		}
	}
	return list
}

// text returns an attribute as text, "" if there is none; of a list the first.
func text(attributes []*commonpb.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() != key {
			continue
		}
		v := a.GetValue()
		if list := v.GetArrayValue().GetValues(); len(list) > 0 {
			v = list[0]
		}
		return cmp.Or(v.GetStringValue(), fmt.Sprint(v.GetIntValue()))
	}
	return ""
}

func (s sentSpan) began() time.Time { return time.Unix(0, int64(s.GetStartTimeUnixNano())) }
func (s sentSpan) took() time.Duration {
	return time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())
}

// tree puts the spans of a trace in the order of a tree, each with its depth. A span whose parent is not there has none.
func tree(spans []sentSpan) (list []sentSpan, depths []int) {
	slices.SortStableFunc(spans, func(a, b sentSpan) int { return a.began().Compare(b.began()) })
	known := map[string]bool{}
	for _, s := range spans {
		known[string(s.GetSpanId())] = true
	}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, s := range spans {
			if p := string(s.GetParentSpanId()); p == parent || depth == 0 && !known[p] {
				list, depths = append(list, s), append(depths, depth)
				walk(string(s.GetSpanId()), depth+1)
			}
		}
	}
	walk("-", 0)
	return list, depths
}

// picture draws a trace: a line for each span, with what it took and a bar for when that was.
func picture(spans []sentSpan) string {
	const wide, name = 30, 46
	list, depths := tree(spans)
	first, last := list[0].began(), list[0].began().Add(list[0].took())
	for _, s := range list {
		if end := s.began().Add(s.took()); end.After(last) {
			last = end
		}
	}
	at := func(moment time.Time) int { return int(moment.Sub(first) * wide / max(last.Sub(first), 1)) }
	var b strings.Builder
	for i, s := range list {
		from, to := at(s.began()), at(s.began().Add(s.took()))
		bar := strings.Repeat(" ", from) + strings.Repeat("#", max(1, to-from))
		fmt.Fprintf(&b, "%-*s %10s  |%-*s|\n", name, strings.Repeat("  ", depths[i])+s.GetName(), s.took().Round(10*time.Microsecond), wide+1, bar)
	}
	return b.String()
}
