package cell

import (
	"context"
	"sync"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// inflight bounds the bytes of the requests that are being served: a request is
// kept in memory for as long as its call waits, for clients' caches perhaps for a
// minute, and a connection may have very many calls. It is safe for concurrent use.
//
// Who fills it must not stop the others. So a connection that has no more than
// leastInflight bytes in flight is not refused on account of all, and KeepAlives are not
// counted: they are small (maxKeepAlive), and a session has one at a time.
type inflight struct {
	all, each int // bytes, of all connections and of one

	mu   sync.Mutex // guards what follows
	sum  int
	from map[string]int // bytes by the address of the connection
}

func newInflight(all, each int) *inflight {
	return &inflight{all: all, each: each, from: map[string]int{}}
}

// admit takes a request in, or refuses it. done is to be called when it has been
// served.
func (f *inflight) admit(ctx context.Context, request any) (done func(), err error) {
	message, ok := request.(proto.Message)
	if !ok {
		return func() {}, nil
	}
	if _, alive := request.(*pb.KeepAliveRequest); alive {
		if size := proto.Size(message); size > maxKeepAlive {
			return nil, api.Errorf(api.InvalidArgument, "a KeepAlive of %d bytes; it has at most %d", size, maxKeepAlive)
		}
		return func() {}, nil
	}
	var from string
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	return f.take(from, proto.Size(message))
}

func (f *inflight) take(from string, size int) (done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.from[from]+size > f.each:
		return nil, api.Errorf(api.Unavailable, "the requests of this connection that are being served have %d bytes, and at most %d are allowed; wait for some answers, then try again", f.from[from], f.each)
	case f.from[from]+size > leastInflight && f.sum+size > f.all:
		return nil, api.Errorf(api.Unavailable, "the requests that are being served have %d bytes, and at most %d are allowed; try again", f.sum, f.all)
	}
	f.sum += size
	f.from[from] += size
	return func() { f.give(from, size) }, nil
}

func (f *inflight) give(from string, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum -= size
	if f.from[from] -= size; f.from[from] == 0 {
		delete(f.from, from)
	}
}
