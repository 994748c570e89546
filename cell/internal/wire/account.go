package wire

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/internal/frames"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Weights and limits, in bytes.
const (
	// callWeight is for a call itself, mostly its goroutine's stack. With the longest headers, a call takes up
	// to four times as much.
	callWeight = 8 << 10
	// smallCall is the size up to which requests and replies pass, whatever their connection holds.
	smallCall = 16 << 10
	// leastHeld is what each connection may hold, whatever others hold: enough to find the master and release locks.
	leastHeld = 32 << 10
	// frameWeight is for a frame itself.
	frameWeight = 128
)

// account counts the memory held for one connection. gRPC limits neither incomplete requests nor unread
// replies: it reopens the connection's window as data arrives, not as it is read. So the account follows the
// frames on the connection. A call counts from its first frame until its stream has ended on the wire and its
// handler has returned. It is safe for concurrent use.
type account struct {
	all    *Connections
	origin *party
	conn   *heardConn

	mu      sync.Mutex // guards the fields below
	in, out passing
	started bool // something has arrived, so the frames' kind is known
	calls   map[uint64]*call
	last    uint64 // newest stream
	newest  *call  // the call whose header was read last
	bytes   int64
	writing bool  // during a write
	stalled int64 // bytes of frames that arrived during it: gRPC may keep them
	closed  bool
}

// call is a call, or what remains of it, and the stream of its handler.
type call struct {
	// Its account's mutex guards these.
	of      *account
	request int64
	reply   int64
	open    bool // its stream has not ended
	serving bool
	begun   bool // it was served or refused

	// These are for the goroutine that serves it.
	rpc               rpc  // the row of its method
	foreign           bool // it named a session of another principal
	grpc.ServerStream      // of its transport
	service           *service
	method            string                       // in full
	arrived           time.Duration                // when its request or its headers arrived, by the stopwatch
	unread            proto.Message                // for its request
	refusal           error                        // why its request was not decoded
	asked             any                          // its request; nil before it is decoded, and once the call is parked
	named             steps.RequestID              // the client's request id
	before            witness                      // when its request was decoded
	trace             Trace                        // nil if not traced
	slow              map[steps.Kind]time.Duration // what a slow call waited for; nil before that
}

var _ steps.Call = (*call)(nil)

func newAccount(all *Connections, origin *party, conn *heardConn) *account {
	origin.silent.Add(1)
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

// endingIs counts n more bytes as held by a closed connection. a.mu is held.
func (a *account) endingIs(n int64) {
	a.origin.ending.Add(n)
	a.all.ending.Add(n)
}

func (a *account) received(p []byte) {
	a.mu.Lock()
	before := a.bytes
	if !a.started && len(p) > 0 {
		a.start(p[0])
	}
	a.in.scan(p, a.arrived)
	grown, bytes := a.bytes > before, a.bytes
	a.mu.Unlock()
	if grown {
		a.all.relieve(a, bytes)
	}
}

// start learns from the first byte which frames follow, before any is sent. a.mu is held.
func (a *account) start(first byte) {
	a.speaks()
	if first == frames.FirstByte {
		a.in, a.out = passing{ours: true, skip: frames.HelloSize}, passing{ours: true, skip: frames.HelloSize}
	}
}

// speaks ends that its connection counts as silent. a.mu is held.
func (a *account) speaks() {
	if !a.started {
		a.started = true
		a.origin.silent.Add(-1)
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
			break // trailers, which gRPC rejects
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

// dataWeight returns how many bytes gRPC allocates for a data frame.
func dataWeight(length int) int64 {
	switch {
	case length <= 1<<10:
		return int64(length) + frameWeight
	case length <= 4<<10:
		return 4 << 10
	}
	return max(16<<10, int64(length))
}

func (a *account) sending() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writing = true
}

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

// end records that a stream has ended. a.mu is held.
func (a *account) end(stream uint64) {
	c := a.calls[stream]
	if c == nil {
		return
	}
	delete(a.calls, stream)
	c.open = false
	c.settle()
}

// settle releases what the call no longer holds. Until the stream has ended, gRPC keeps data that the handler
// has not read. of.mu is held.
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

// close ends every call of a closed connection. A call that is being served counts until it returns, soon: its
// context has ended.
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
	a.speaks() // nothing more arrives
	a.endingIs(a.bytes)
}

func (a *account) held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// withCall adds the newest call to a context. The transports run it when a request's header has arrived and
// before they read more, so the newest call is the right one.
func withCall(ctx context.Context) context.Context {
	a := connOf(ctx).account
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.newest
	a.newest = nil // what it holds when it has ended is counted no more
	if c == nil {  // the connection was closed
		c = &call{of: a}
	}
	return context.WithValue(ctx, steps.CallKey{}, c)
}

// Values of HTTP/2 (RFC 9113, 3.4, 4.1 and 6).
const (
	prefaceLen  = 24 // bytes with which a client begins
	frameHeader = 9  // bytes before the payload of a frame

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3 // RST_STREAM
	frameOther   = 0xff

	flagEndStream = 0x1 // of frameData and frameHeaders
)

// frame is the header of a frame, in the terms of HTTP/2.
type frame struct {
	kind, flags byte
	stream      uint64 // or the number of a call
	length      int    // of the payload
}

// passing finds the frames in one direction of a connection, however the data is cut. Its zero value is ready
// at the beginning of an HTTP/2 frame.
type passing struct {
	ours bool // the frames belong to package frames
	skip int  // bytes up to the next frame
	head [frames.HeaderSize]byte
	have int // bytes of head that have passed
}

// scan calls see for each frame whose header ends in p.
func (s *passing) scan(p []byte, see func(frame)) {
	size := frameHeader
	if s.ours {
		size = frames.HeaderSize
	}
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip, p = s.skip-n, p[n:]
			continue
		}
		n := copy(s.head[s.have:size], p)
		s.have, p = s.have+n, p[n:]
		if s.have < size {
			return
		}
		s.have = 0
		if s.ours {
			s.skip = seeOurs(frames.ParseHeader(&s.head), see)
			continue
		}
		s.skip = int(binary.BigEndian.Uint32(s.head[0:4]) >> 8)
		see(frame{kind: s.head[3], flags: s.head[4], stream: uint64(binary.BigEndian.Uint32(s.head[5:9]) &^ (1 << 31)), length: s.skip})
	}
}

// seeOurs calls see for a frame of package frames, and returns its length.
func seeOurs(h frames.Header, see func(frame)) int {
	f := frame{kind: frameOther, stream: h.Call, length: h.Length}
	switch h.Kind {
	case frames.KindRequest:
		see(frame{kind: frameHeaders, stream: h.Call})
		f.kind = frameData
	case frames.KindReply:
		f.kind = frameData
	case frames.KindLast, frames.KindStatus:
		f.kind, f.flags = frameData, flagEndStream
	case frames.KindCancel:
		f.kind = frameReset
	}
	see(f)
	return h.Length
}

// maxWaste is how many bytes the useless calls of one address may take in a second, as 200 short ones do: calls
// that the client resets, that exceed a rate, or that end before they are served. Beyond it, their connection
// is read later.
const maxWaste = 200 * callWeight

// wasted counts a useless call. Beyond maxWaste a second from one address, it delays the next read from the
// connection. of.mu is held.
func (c *call) wasted() {
	a := c.of
	if refill, _ := a.origin.waste.spend(a.conn.LastArrival(), c.request, maxWaste, burst+maxRest); refill > burst {
		a.conn.rest.Store(int64(min(refill-burst, maxRest)))
	}
}

// callOf returns the call of a context; nil without one.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(steps.CallKey{}).(*call)
	return c
}

// RequestID implements steps.Call.
func (c *call) RequestID() steps.RequestID { return c.named }

// TraceID implements steps.Call.
func (c *call) TraceID() string {
	if c.trace == nil {
		return ""
	}
	return c.trace.ID()
}

// Step implements steps.Call, for a call that is traced or was slow.
func (c *call) Step(s steps.Step) {
	if c.trace != nil {
		c.trace.Step(s)
	}
	if c.slow == nil {
		c.slow = map[steps.Kind]time.Duration{}
	}
	for _, one := range append([]steps.Step{s}, s.Parts...) {
		c.slow[one.Kind] += one.To.Sub(one.From)
	}
}
