package frames

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

// outlet is the sending half of a connection. It writes frames in the order of put; those put during a write go
// out together in the next one.
type outlet struct {
	conn    net.Conn
	clock   stopwatch
	pool    *buffers
	stopped func(error)  // gets the reason when writing ends; nil: everything was written, and no more may come
	since   atomic.Int64 // when the current write began, by clock; 0 without one

	running sync.WaitGroup // goroutines that write; Add only under mu, and not after closed
	wake    chan struct{}  // nil: each write has its own goroutine; else one stays, and has an element when it is to write

	mu      sync.Mutex // guards what follows
	waiting []*buffer
	spare   []*buffer // the memory of the last list
	finals  int       // waiting frames that end a call
	put     uint64    // bytes put so far
	begun   uint64    // of those, handed to the connection
	writing bool      // somebody writes, or is about to
	ending  bool      // call stopped when nothing waits any more
	closed  bool
	stays   bool // the staying goroutine has started
}

// newWake is for an outlet whose callers mostly have no time to write. A new goroutine's stack would grow anew
// for each write: over TLS that takes as long as the encryption.
func newWake() chan struct{} { return make(chan struct{}, 1) }

// maxChunk is the maximum size of frames written together.
const maxChunk = 16 << 10

// control sends a frame that has only a header.
func (o *outlet) control(h Header) {
	frame := o.pool.get(HeaderSize)
	frame.b = h.Append(frame.b)
	o.send(frame)
}

// send puts a frame that ends no call, and has it written.
func (o *outlet) send(frame *buffer) {
	if _, write, _ := o.enqueue(frame, false); write {
		o.write()
	}
}

// enqueue puts a frame, which the outlet then owns. It returns the frame's position in all that was put, and whether the
// connection was open. write says that the caller has to call write or flush.
func (o *outlet) enqueue(frame *buffer, final bool) (at uint64, write, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.pool.put(frame)
		return 0, false, false
	}
	at = o.put
	o.put += uint64(len(frame.b))
	if final {
		o.finals++
	}
	if n := len(o.waiting); n > 0 && len(o.waiting[n-1].b)+len(frame.b) <= maxChunk {
		last := o.waiting[n-1]
		last.b = append(last.b, frame.b...)
		o.pool.put(frame)
	} else {
		o.waiting = append(o.waiting, frame)
	}
	write, o.writing = !o.writing, true
	return at, write, true
}

// write lets a goroutine write, since the caller has no time.
func (o *outlet) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
	case o.wake == nil:
		o.running.Go(o.flush)
	default:
		o.wake <- struct{}{} // there is room: nobody else writes, or is about to
		if !o.stays {
			o.stays = true
			o.running.Go(o.stay)
		}
	}
}

// stay flushes whenever there is something to write, until the outlet is closed.
func (o *outlet) stay() {
	for range o.wake {
		o.flush()
	}
}

// flush writes until nothing waits.
func (o *outlet) flush() {
	runtime.Gosched() // takes along what others are about to put
	o.mu.Lock()
	for !o.closed && len(o.waiting) > 0 {
		list := o.waiting
		o.waiting, o.spare, o.finals, o.begun = o.spare, nil, 0, o.put
		o.mu.Unlock()
		err := o.writeAll(list)
		o.mu.Lock()
		clear(list)
		o.spare = list[:0]
		if err != nil && !o.closed {
			o.mu.Unlock()
			o.stopped(err)
			return
		}
	}
	o.writing = false
	ended := o.ending && !o.closed
	o.mu.Unlock()
	if ended {
		o.stopped(nil)
	}
}

func (o *outlet) writeAll(list []*buffer) error {
	for _, b := range list {
		o.since.Store(max(1, int64(o.clock.read())))
		_, err := o.conn.Write(b.b)
		o.since.Store(0)
		if err != nil {
			return err
		}
		o.pool.put(b)
	}
	return nil
}

// end calls stopped with nil after everything put is written. Nothing is put afterwards.
func (o *outlet) end() {
	o.mu.Lock()
	o.ending = true
	now := !o.writing && !o.closed
	o.mu.Unlock()
	if now {
		o.stopped(nil)
	}
}

// close ends all writing. It returns how much of what was put was handed to the connection, which may have sent
// it.
func (o *outlet) close() (begun uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.wake != nil {
		close(o.wake)
	}
	o.closed, o.waiting, o.spare = true, nil, nil
	return o.begun
}

func (o *outlet) unanswered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finals
}

// backlog returns the waiting bytes.
func (o *outlet) backlog() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put - o.begun
}
