package frames

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
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
