package frames

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrParked is the result of a handler that parked its call: see Park.
var ErrParked = errors.New("the call is parked")

// Park lets a call's handler return before its last reply is known, so that a long wait needs no goroutine. ctx
// is the handler's, or derived from it; the handler then returns ErrParked. After that and resume, rest runs,
// and its result answers the call, as the last of several replies; rest may send others before, or park the
// call again. resume may be called from anywhere, repeatedly, and never blocks. The server resumes a call whose
// context has ended. A prompt rest never waits, except for a mutex: however many are resumed, few goroutines run
// them. A call over gRPC keeps its goroutine, which gRPC needs.
func Park(ctx context.Context, prompt bool, rest func() (reply any, err error)) (resume func()) {
	k, ok := ctx.Value(callKey{}).(interface {
		park(prompt bool, rest func() (any, error)) (resume func())
	})
	if !ok {
		panic("only a call of a Server can be parked")
	}
	return k.park(prompt, rest)
}

// park first publishes the parking, and then looks whether the call has ended. The end of a call does both in the
// other order, so that one of the two resumes it.
func (k *serverCall) park(prompt bool, rest func() (any, error)) (resume func()) {
	p := &parking{call: k, prompt: prompt, rest: rest}
	p.missing.Store(2)
	if first := k.parking.Swap(p) == nil; first && k.left > 0 {
		context.AfterFunc(k.ctx, k.abandon) // the answer releases it
	}
	//mutant: if false {
	if k.ctx.Err() != nil {
		p.resume()
	}
	return p.resume
}

// abandon resumes the call if it is parked. Its context has ended.
func (k *serverCall) abandon() {
	if p := k.parking.Load(); p != nil {
		p.resume()
	}
}

type parking struct {
	call    *serverCall
	prompt  bool // see Park
	rest    func() (any, error)
	resumed atomic.Bool
	missing atomic.Int32 // of two: the handler's return, and resume
}

func (p *parking) resume() {
	if p.resumed.CompareAndSwap(false, true) {
		p.advance()
	}
}

// advance counts one of the two.
func (p *parking) advance() {
	switch s := p.call.conn.server; {
	case p.missing.Add(-1) > 0:
	case p.prompt:
		s.resumed.add(p)
	default:
		s.workers.run(func() { p.call.returned(p.rest()) })
	}
}

// lane runs the prompt rests of calls that were resumed, in their order, in as many goroutines as there are
// processors. Their answers are written by others: more of them go into one write.
type lane struct {
	workers *workers

	mu      sync.Mutex // guards what follows; workers.mu may be taken under it
	waiting []*parking
	running int // goroutines
}

func (l *lane) add(p *parking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, p)
	//mutant: if true {
	if l.running < runtime.GOMAXPROCS(0) {
		l.running++
		l.workers.run(l.run)
	}
}

// run runs what waits.
func (l *lane) run() {
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.waiting = nil
			l.running--
			l.mu.Unlock()
			return
		}
		p := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		if reply, err := p.rest(); !p.call.isParked(err) {
			p.call.answer(reply, err, p.call.conn.out.write)
		}
	}
}

// workers run handlers on reused goroutines: a stack that has grown already serves a call for less than a new
// one.
type workers struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	resting []chan func()
	closed  bool
}

// maxResting is the maximum of idle goroutines.
const maxResting = 256

// run has do run, without waiting.
func (w *workers) run(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.resting); n > 0 {
		next := w.resting[n-1]
		w.resting[n-1] = nil
		w.resting = w.resting[:n-1]
		next <- do // there is room: it rests
		return
	}
	w.running.Go(func() { w.work(do) })
}

// work runs one handler after the other.
func (w *workers) work(do func()) {
	next := make(chan func(), 1)
	for do != nil {
		do()
		if !w.rest(next) {
			return
		}
		do = <-next
	}
}

// rest adds an idle goroutine, and reports whether there was room.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.resting) >= maxResting {
		return false
	}
	w.resting = append(w.resting, next)
	return true
}

// close waits for the end of all goroutines. Nothing runs afterwards.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for _, next := range w.resting {
		close(next)
	}
	w.resting = nil
	w.mu.Unlock()
	w.running.Wait()
}
