package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// What is counted.
const (
	// callWeight is for a call itself, which is mostly the stack of its goroutine. With
	// the longest headers that are read, a call takes up to four times that.
	callWeight = 8 << 10
	// smallCall is up to which size requests are served, and replies sent, whatever else
	// their connection holds.
	smallCall = 16 << 10
	// leastHeld is what each connection has to itself, whatever others hold: enough to find
	// the master and to give back locks.
	leastHeld = 32 << 10
	// frameWeight is for a frame itself.
	frameWeight = 128
)

// account counts what is held for one connection. gRPC bounds neither what it has
// received of requests that are not complete (its window for the connection is opened
// again as data arrives, not as it is read) nor the replies that a client does not
// read. So the account follows the frames on the connection itself: a call is held from
// its first frame until its stream has ended on the wire and its handler has returned.
// It is safe for concurrent use.
type account struct {
	all    *Connections
	origin *source
	conn   *heardConn
	silent bool // it has sent nothing yet; Connections.mu guards it

	mu      sync.Mutex // guards what follows
	in, out passing
	started bool // something has arrived, and so it is known which frames pass
	calls   map[uint64]*call
	last    uint64 // the newest stream
	newest  *call  // whose header was read last
	bytes   int64
	writing bool  // a write is under way
	stalled int64 // frames that arrived meanwhile: gRPC may have to keep them
	closed  bool
}

// call is a call, or what remains of one. Its account's mu guards it.
type call struct {
	of      *account
	request int64
	reply   int64
	open    bool // its stream has not ended
	serving bool
	begun   bool // it has come to be served, or refused

	arrived time.Duration // when its request, or that of a stream its headers, had, by the stopwatch; for those who serve it

	foreign bool            // it was in a session of another principal
	slow    *phases         // what it has waited for, once it was slow; nil before
	named   steps.RequestID // as its client calls it, once its request has arrived; for those who serve it
}

// isForeign notes that the call is in a session of another principal.
func (c *call) isForeign() {
	if c != nil {
		c.foreign = true
	}
}

func newAccount(all *Connections, origin *source, conn *heardConn) *account {
	return &account{all: all, origin: origin, conn: conn, in: passing{skip: prefaceLen}, calls: map[uint64]*call{}}
}

// add counts n bytes. a.mu is held.
func (a *account) add(n int64) {
	if n != 0 {
		a.bytes += n
		a.origin.bytes.Add(n)
		a.all.bytes.Add(n)
		if a.closed {
			a.endingIs(n)
		}
	}
}

// endingIs counts n more bytes as those of a closed connection. a.mu is held.
func (a *account) endingIs(n int64) {
	a.origin.ending.Add(n)
	a.all.ending.Add(n)
}

// received follows what was read from the connection.
func (a *account) received(p []byte) {
	a.mu.Lock()
	before := a.bytes
	begins := !a.started && len(p) > 0
	if begins {
		a.start(p[0])
	}
	a.in.scan(p, a.arrived)
	grown, bytes := a.bytes > before, a.bytes
	a.mu.Unlock()
	if begins {
		a.all.speaks(a)
	}
	if grown {
		a.all.relieve(a, bytes)
	}
}

// speaks takes it from those that have sent nothing. Connections.mu is held.
func (a *account) speaks() {
	if a.silent {
		a.silent = false
		a.origin.silent--
	}
}

// start is told the first byte that arrives, before anything is sent as frames. a.mu is
// held.
func (a *account) start(first byte) {
	a.started = true
	if first == frames.FirstByte {
		a.in, a.out = passing{ours: true, skip: frames.HelloSize}, passing{ours: true, skip: frames.HelloSize}
	}
}

// arrived counts a frame. a.mu is held.
func (a *account) arrived(f frame) {
	if a.closed {
		return
	}
	switch f.kind {
	case frameHeaders:
		if f.stream <= a.last {
			break // trailers, which gRPC refuses
		}
		c := &call{of: a, request: callWeight, open: true}
		a.last, a.newest, a.calls[f.stream] = f.stream, c, c
		a.add(callWeight)
	case frameData:
		if c := a.calls[f.stream]; c != nil {
			n := dataWeight(f.length)
			c.request += n
			a.add(n)
		}
	case frameReset:
		if c := a.calls[f.stream]; c != nil {
			c.wasted()
		}
		a.end(f.stream)
	}
	if a.writing {
		n := int64(frameWeight)
		if f.kind != frameData {
			n += 2 * int64(f.length)
		}
		a.stalled += n
		a.add(n)
	}
}

// dataWeight returns what gRPC allocates for a frame of data.
func dataWeight(length int) int64 {
	switch {
	case length <= 1<<10:
		return int64(length) + frameWeight
	case length <= 4<<10:
		return 4 << 10
	}
	return max(16<<10, int64(length))
}

// sending says that a write begins.
func (a *account) sending() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = true
}

// sent follows what was written.
func (a *account) sent(p []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = false
	a.add(-a.stalled)
	a.stalled = 0
	a.out.scan(p, func(f frame) {
		switch {
		case f.kind == frameReset, f.kind <= frameHeaders && f.flags&flagEndStream != 0:
			if c := a.calls[f.stream]; c != nil && !c.begun {
				c.wasted()
			}
			a.end(f.stream)
		case f.kind == frameData:
			if c := a.calls[f.stream]; c != nil {
				n := min(int64(f.length), c.reply)
				c.reply -= n
				a.add(-n)
			}
		}
	})
}

// end takes note that a stream has ended. a.mu is held.
func (a *account) end(stream uint64) {
	c := a.calls[stream]
	if c == nil {
		return
	}
	delete(a.calls, stream)
	c.open = false
	c.settle()
}

// settle gives back what the call holds no more. Until its stream has ended gRPC keeps
// what has arrived and its handler has not read. of.mu is held.
func (c *call) settle() {
	if c.open {
		return
	}
	if !c.serving {
		c.of.add(-c.request)
		c.request = 0
	}
	c.of.add(-c.reply)
	c.reply = 0
}

// close ends every call of a connection that is closed. What is being served is held
// until it has been, which is soon: its context has ended.
func (a *account) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	for stream := range a.calls {
		a.end(stream)
	}
	a.add(-a.stalled)
	a.stalled = 0
	a.closed, a.newest = true, nil
	a.endingIs(a.bytes)
}

// held returns how much is held.
func (a *account) held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// withCall is called for each request, or the header that begins it, before more is read
// from the connection, and so the call is the newest one.
func withCall(ctx context.Context) context.Context {
	conn := connOf(ctx)
	if conn == nil || conn.account == nil {
		return ctx
	}
	conn.account.mu.Lock()
	defer conn.account.mu.Unlock()
	return context.WithValue(ctx, steps.CallKey{}, conn.account.newest)
}

// tapCall is withCall as gRPC has it. It refuses nothing: gRPC keeps the timer of the
// deadline of a call that is refused here.
func tapCall(ctx context.Context, _ *tap.Info) (context.Context, error) { return withCall(ctx), nil }

// callOf returns the call of a context, nil if it is not known. The methods of a nil
// call do nothing.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(steps.CallKey{}).(*call)
	return c
}

// full returns why there is no room for another n bytes, or, of requests, why there is
// none for those n, which are counted. a.mu is held.
func (a *account) full(n int64) error {
	if limit := a.all.limits.conn; a.bytes > limit && n > smallCall {
		return api.Errorf(api.Unavailable, "the calls of this connection hold %d bytes of the replica's memory, and at most %d are allowed; wait for some answers, and read them, then try again", a.bytes, limit)
	}
	if a.bytes <= leastHeld {
		return nil
	}
	return a.all.full(a.origin)
}

// answer counts a reply, or refuses to send it: a long one, while the client does not
// read others. Of replies to one call that are not read yet, only few are kept. The
// reply to a KeepAlive extends a lease, and is not refused however much it tells.
//
// The error is Uncertain: what the call asks for may have been done, and only a retry finds out. Unavailable would say that it
// was not.
func (c *call) answer(reply any) error {
	message, ok := reply.(proto.Message)
	if c == nil || !ok {
		return nil
	}
	_, alive := reply.(*pb.KeepAliveReply)
	bytes, err := c.admit(int64(proto.Size(message)), alive)
	var e *api.Error
	if errors.As(err, &e) {
		return &api.Error{Code: api.Uncertain, Message: e.Message}
	}
	c.of.all.relieve(c.of, bytes)
	return err
}

// admit counts a reply of n bytes, if there is room or it is vital, and returns what the
// account holds.
func (c *call) admit(n int64, vital bool) (int64, error) {
	a := c.of
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.open {
		return a.bytes, nil // it goes nowhere
	}
	if n > smallCall && !vital {
		if err := a.full(n); err != nil {
			return a.bytes, err
		}
	}
	if c.reply > smallCall {
		return a.bytes, api.Errorf(api.Unavailable, "the client does not read what it is told: %d bytes wait; read them, then try again", c.reply)
	}
	c.reply += n
	a.add(n)
	return a.bytes, nil
}
