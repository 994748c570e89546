package cell_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/frames"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// recorder keeps the spans of a test.
type recorder struct {
	*tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newRecorder(t *testing.T, sampler sdktrace.Sampler) recorder {
	t.Helper()
	r := recorder{InMemoryExporter: tracetest.NewInMemoryExporter()}
	r.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r), sdktrace.WithSampler(sdktrace.ParentBased(sampler)))
	t.Cleanup(func() {
		report(t, r.provider.Shutdown(context.Background()))
	})
	return r
}

// traced has a replica trace calls.
func (r recorder) traced(cfg *cell.Config) {
	cfg.Tracing = cell.TraceConfig{Provider: r.provider, Ratio: 1}
}

// sampled begins a trace that is recorded, whatever the sampler says of others.
func sampled(ctx context.Context, r recorder) (context.Context, trace.Span) {
	begun := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	return r.provider.Tracer("test").Start(trace.ContextWithSpanContext(ctx, begun), "deploy")
}

// below returns the names of the spans below one, each with those below it, in the order of their beginnings.
func below(spans tracetest.SpanStubs, parent trace.SpanID, depth int) (names []string, list tracetest.SpanStubs) {
	var children tracetest.SpanStubs
	for _, s := range spans {
		if s.Parent.SpanID() == parent {
			children = append(children, s)
		}
	}
	slices.SortStableFunc(children, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for _, s := range children {
		names, list = append(names, strings.Repeat(" ", depth)+s.Name), append(list, s)
		more, theirs := below(spans, s.SpanContext.SpanID(), depth+1)
		names, list = append(names, more...), append(list, theirs...)
	}
	return names, list
}

// find returns the one span of that name, with what is below it.
func find(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no span %q", name)
	return tracetest.SpanStub{}
}

func attributeOf(s tracetest.SpanStub, key string) attribute.Value {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// deaf is a connection to a replica that does not know frames.
type deaf struct {
	net.Conn
	spoken atomic.Bool
}

func (d *deaf) Write(p []byte) (int, error) {
	if !d.spoken.Swap(true) && p[0] == frames.FirstByte {
		return len(p), d.Close()
	}
	return d.Conn.Write(p)
}

// One trace shows what a client has waited for: another client's cache, a place in the queue of a lock, and the commits. An error of a
// call that is traced names its trace.
func TestTraceOfAWait(t *testing.T) {
	for over, through := range map[string]func(net.Conn) net.Conn{
		"frames": func(conn net.Conn) net.Conn { return conn },
		"gRPC":   func(conn net.Conn) net.Conn { return &deaf{Conn: conn} },
	} {
		t.Run(over, func(t *testing.T) { traceAWait(t, through) })
	}
}

func traceAWait(t *testing.T, through func(net.Conn) net.Conn) {
	r := newRecorder(t, sdktrace.NeverSample())
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		holder := dial(t, ctx, c, "holder", client.Config{NoCache: true})
		must(holder.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true, Create: client.Directory}))(t)
		held := acquire(t, ctx, open(t, ctx, holder, "/ls/local/d/lock", 0))
		slow := dial(t, ctx, c, "slow", client.Config{})
		dir := must(slow.Open(ctx, "/ls/local/d", client.OpenOptions{Read: true}))(t)
		for range 2 {
			must(dir.ReadDir(ctx))(t)
		}
		c.Cut("slow")
		waiter := dial(t, ctx, c, "waiter", client.Config{NoCache: true, Tracer: r.provider, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.DialFrom("waiter")(ctx, address)
			if err != nil {
				return nil, err
			}
			return through(conn), nil
		}})
		if spans := r.GetSpans(); len(spans) > 0 {
			t.Errorf("%d spans are of calls that nobody wants to be traced", len(spans))
		}
		within, root := sampled(ctx, r)
		must(waiter.Open(within, "/ls/local/d/new", client.OpenOptions{Read: true, Create: client.File}))(t)
		h := open(t, within, waiter, "/ls/local/d/lock", 0)
		time.AfterFunc(3*time.Second, func() { _ = held.Release(ctx) })
		acquire(t, within, h)
		_, err := waiter.Open(within, "/ls/local/none/x", client.OpenOptions{Read: true})
		var e *api.Error
		id := root.SpanContext().TraceID().String()
		failIf(t, !errors.As(err, &e) || e.Trace != id || !strings.Contains(e.Error(), "trace "+id), "a call of trace %s: %v", id, err)
		_, err = waiter.Open(ctx, "/ls/local/none/x", client.OpenOptions{Read: true})
		failIf(t, err == nil || strings.Contains(err.Error(), "trace"), "a call that is not traced: %v", err)
		root.End()
		synctest.Wait()

		spans := r.GetSpans()
		names, list := below(spans, root.SpanContext().SpanID(), 0)
		entry := []string{
			"   wait for the entry before", "   commit", "    append and sync", "    wait for a quorum", "    apply", "    observe",
		}
		want := slices.Concat(
			[]string{"chubby open", " attempt", "  chubby.Chubby/Open", "   wait for caches"}, entry,
			[]string{"chubby open", " attempt", "  chubby.Chubby/Open"},
			[]string{"chubby acquire", " attempt", "  chubby.Chubby/Acquire", "   wait in the queue of the lock"}, entry,
			[]string{"chubby open", " attempt", "  chubby.Chubby/Open"})
		stopIf(t, !slices.Equal(names, want), "the spans are\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
		for _, s := range list {
			if s.SpanContext.TraceID() != root.SpanContext().TraceID() || s.EndTime.Before(s.StartTime) {
				t.Errorf("%s is of the trace %v, and lasts from %v to %v", s.Name, s.SpanContext.TraceID(), s.StartTime, s.EndTime)
			}
		}
		caches, queue := find(t, list, "wait for caches"), find(t, list, "wait in the queue of the lock")
		if got := attributeOf(caches, "chubby.slow.sessions").AsStringSlice(); !slices.Equal(got, []string{slow.Session().String()}) {
			t.Errorf("it waited for the caches of %v, want %v", got, slow.Session())
		}
		// The master looks at what has expired at most once in a millisecond.
		if took := caches.EndTime.Sub(caches.StartTime); took < time.Second || took > api.CacheLease+time.Millisecond {
			t.Errorf("it waited for caches for %v", took)
		}
		if got := attributeOf(queue, "chubby.lock.holders").AsStringSlice(); !slices.Equal(got, []string{holder.Session().String()}) || attributeOf(queue, "chubby.queue.place").AsInt64() != 1 {
			t.Errorf("it was at %d, behind %v; want 1, behind %v", attributeOf(queue, "chubby.queue.place").AsInt64(), got, holder.Session())
		}
		if took := queue.EndTime.Sub(queue.StartTime); took < 2900*time.Millisecond || took > 3*time.Second {
			t.Errorf("it waited in the queue for %v", took)
		}
		call := find(t, list, "chubby.Chubby/Acquire")
		if got := attributeOf(call, "chubby.path").AsString(); got != "/ls/local/d/lock" || attributeOf(call, "chubby.session").AsString() != waiter.Session().String() || len(attributeOf(call, "chubby.request").AsString()) != 16 {
			t.Errorf("the call was of %v", call.Attributes)
		}
	}, r.traced)
}
