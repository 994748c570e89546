package frames

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/emptypb"
)

// parent is a context that counts those that are made of it and have not ended.
type parent struct {
	context.Context
	done chan struct{}
	open *atomic.Int64
}

func (p parent) Done() <-chan struct{} { return p.done }

// AfterFunc is what package context calls for each context that is made of this one, and stops
// when that has ended.
func (p parent) AfterFunc(func()) (stop func() bool) {
	p.open.Add(1)
	return func() bool { return p.open.Add(-1) >= 0 }
}

// Nothing is kept of requests that are refused before they have a handler: their client may
// have said that there are years left for them, and its connection may be open for as long.
func TestNothingIsKeptOfRefusedRequests(t *testing.T) {
	years := func(method string) []byte {
		b := appendRequest(Header{Kind: KindRequest}.Append(nil), method, 100*365*24*time.Hour)
		seal(b, 1)
		return b
	}
	for name, sent := range map[string][]byte{
		"an unknown method": years("/no/method"),
		"a known method":    years(pb.TestService_UnaryCall_FullMethodName),
		"no method":         Header{Kind: KindRequest, Call: 1}.Append(nil),
		"a long request":    append(Header{Kind: KindRequest, Call: 1, Length: 2 * hostRequest}.Append(nil), make([]byte, 2*hostRequest)...),
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t)
			var open atomic.Int64
			h.server.cfg.Tap = func(ctx context.Context) context.Context {
				return parent{Context: ctx, done: make(chan struct{}), open: &open}
			}
			ours, theirs := net.Pipe()
			h.server.Go(&buffered{Conn: theirs, reader: bufio.NewReader(theirs)})
			r := &rude{t: t, conn: ours}
			r.greet()
			go func() { _, _ = ours.Write(sent) }()
			var head [HeaderSize]byte
			if _, err := readHeader(ours, &head); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%s: %d contexts are kept when it has been answered", name, n)
			}
			_ = ours.Close()
		})
	}
}

// A connection that ends, and a cancel, take a call from those that are open, and end its context a moment later. Whoever sends a reply in between
// has no cause.
func TestReplyWhileItsCallEnds(t *testing.T) {
	here, there := net.Pipe()
	defer func() { _ = here.Close() }()
	defer func() { _ = there.Close() }()
	c := newServerConn(NewServer(ServerConfig{MaxCalls: 10, MaxRequest: 1 << 10}), here)
	k := &serverCall{conn: c, number: 1}
	k.begin()
	defer k.cancel(nil)
	c.calls[1] = k
	c.mu.Lock()
	delete(c.calls, 1) // as serverConn.end and take do
	c.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	if err := k.SendMsg(&emptypb.Empty{}); err == nil {
		t.Error("it was sent")
	}
}

// writersConn notes which goroutines write.
type writersConn struct {
	net.Conn
	mu  sync.Mutex
	ids map[string]int
}

func (c *writersConn) Write(p []byte) (int, error) {
	var stack [64]byte
	id, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte(" ["))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[string(id)]++
	return len(p), nil
}

// The writes of a link are made by one goroutine, which stays and keeps its stack, and ends when the outlet is closed.
func TestOneGoroutineWritesForALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if the goroutine does not end
		conn := &writersConn{ids: map[string]int{}}
		var pool buffers
		o := outlet{conn: conn, clock: startStopwatch(), pool: &pool, wake: newWake()}
		for range 5 {
			frame := pool.get(8)
			frame.b = append(frame.b, "message"...)
			if _, write, _ := o.enqueue(frame, false); write {
				o.write()
			}
			synctest.Wait()
		}
		if len(conn.ids) != 1 {
			t.Errorf("goroutines wrote as often as %v; want one", conn.ids)
		}
		o.close()
		o.close()
		o.running.Wait()
		if _, _, open := o.enqueue(pool.get(1), false); open {
			t.Error("it takes more after its end")
		}
	})
}
