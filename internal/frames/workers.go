package frames

import "sync"

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
