package frames

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

// outlet is the half of a connection that sends. Frames are written in the order in which
// they are put, and those that are put during a write go out together in the next one.
type outlet struct {
	conn    net.Conn
	clock   stopwatch
	pool    *buffers
	stopped func(error)  // is told why nothing is written any more; nil: everything was, and no more may come
	since   atomic.Int64 // when the write that is under way began, by clock; 0 if there is none

	running sync.WaitGroup // goroutines that write; Add only under mu, and not after closed
	wake    chan struct{}  // nil: each write has a goroutine of its own; else one stays, and has an element when it is to write

	mu      sync.Mutex // guards what follows
	waiting []*buffer
	spare   []*buffer // the memory of the list before
	finals  int       // frames among those waiting that end a call
	put     uint64    // bytes that were ever put
	begun   uint64    // of those, up to where they were handed to the connection
	writing bool      // somebody writes, or is about to
	ending  bool      // stopped is called when nothing waits any more
	closed  bool
	stays   bool // the goroutine that stays has been started
}

// newWake is for an outlet of whose writes most are for callers that have no time to make them. Each would have a new
// goroutine, whose stack grows anew: below a write over TLS that takes as long as the encryption.
func newWake() chan struct{} { return make(chan struct{}, 1) }

// maxChunk is up to which size frames are written together.
const maxChunk = 16 << 10

// send puts a frame, and has it written. It reports where the frame is among all that was
// put, and whether the connection was open. The frame is the outlet's from then on.
func (o *outlet) send(frame *buffer, final bool) (at uint64, open bool) {
	at, write, open := o.enqueue(frame, final)
	if write {
		o.write()
	}
	return at, open
}

// enqueue puts a frame. write says that the caller has to call write, or flush.
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

// write has a goroutine write what waits: the caller has no time to.
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
	runtime.Gosched() // what others are about to put goes out with it
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

// writeAll writes some buffers, and gives them back.
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

// end has stopped called, with nil, when everything that was put has been written. Nothing
// is put afterwards.
func (o *outlet) end() {
	o.mu.Lock()
	o.ending = true
	now := !o.writing && !o.closed
	o.mu.Unlock()
	if now {
		o.stopped(nil)
	}
}

// close says that nothing is written any more. It returns up to where what was put was
// handed to the connection, which may have sent it.
func (o *outlet) close() (begun uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.wake != nil {
		close(o.wake)
	}
	o.closed, o.waiting, o.spare = true, nil, nil
	return o.begun
}

// unanswered returns how many of the frames that wait end a call.
func (o *outlet) unanswered() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finals
}

// backlog returns how many bytes wait.
func (o *outlet) backlog() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put - o.begun
}
