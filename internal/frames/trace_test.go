package frames

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traceKey finds the trace of a call that is made in a test.
type traceKey struct{}

func traceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}

// A server knows of each call to which trace it belongs, and of the next one that it belongs to none.
func TestTraceparent(t *testing.T) {
	h := newHost(t)
	var mu sync.Mutex
	var seen []string
	h.server.cfg.Serve = func(m *Method, stream grpc.ServerStream) (any, error) {
		mu.Lock()
		seen = append(seen, Traceparent(stream.Context()))
		mu.Unlock()
		return m.Call(stream, nil)
	}
	l, stub := linked(t, dialled(t, h.listen(t)))
	l.cfg.Traceparent = traceOf
	for _, trace := range []string{"", someTrace, "", strings.Repeat("x", maxTrace), strings.Repeat("x", maxTrace+1), someTrace} {
		if _, err := stub.UnaryCall(context.WithValue(t.Context(), traceKey{}, trace), &pb.SimpleRequest{}); err != nil {
			t.Errorf("a call of the trace %q: %v", trace, err)
		}
		want := trace
		if len(trace) > maxTrace {
			want = ""
		}
		if got := seen[len(seen)-1]; got != want {
			t.Errorf("the server was told %q, want %q", got, want)
		}
	}
	if Traceparent(t.Context()) != "" {
		t.Error("a context that is of no call belongs to a trace")
	}
}

// The trace of a call that never came is not that of another call.
func TestTraceOfAnother(t *testing.T) {
	h := newHost(t)
	told := make(chan string, 1)
	h.server.cfg.Serve = func(m *Method, stream grpc.ServerStream) (any, error) {
		told <- Traceparent(stream.Context())
		return m.Call(stream, nil)
	}
	conn := dialled(t, h.listen(t))
	frame := hello{length: 1 << 20}.append(nil)
	frame = appendTrace(frame, someTrace) // of call 0
	request := appendRequest(Header{Kind: KindRequest}.Append(nil), "/grpc.testing.TestService/UnaryCall", 0)
	seal(request, 1)
	if _, err := conn.Write(append(frame, request...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, HelloSize+HeaderSize)); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != "" {
		t.Errorf("call 1 has the trace %q of call 0", got)
	}
}
