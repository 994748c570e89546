package cell

import (
	"cmp"
	"sync"
	"time"
)

// pausingMutex is the mutex of a master. Every call takes it, and so do the clock
// loop and the proposer, so that no hold may grow with the size of the cell: work
// that does is cut at points where others may come in between, with pause.
//
// It measures each hold. The zero value is an unlocked mutex that measures nothing.
type pausingMutex struct {
	mu    sync.Mutex
	watch func() time.Duration // may be nil
	held  func(time.Duration)  // is told of each hold, after it; may be nil
	began time.Duration        // by watch; guarded by mu, as is steps
	steps int                  // of the work done in this hold
	most  int                  // instead of maxSteps: a test's, whose work is small; 0 otherwise
}

// maxSteps bounds the steps of one hold. A step is something like an event posted,
// a handle forgotten or a lock offered: a microsecond, or a few.
const maxSteps = 512

// Lock is that of sync.Mutex.
func (p *pausingMutex) Lock() {
	p.mu.Lock()
	p.steps = 0
	if p.watch != nil {
		p.began = p.watch()
	}
}

// Unlock is that of sync.Mutex.
func (p *pausingMutex) Unlock() {
	var took time.Duration
	if p.watch != nil {
		took = p.watch() - p.began
	}
	held := p.held
	p.mu.Unlock()
	if held != nil {
		held(took)
	}
}

// pause notes that so many steps were done, and lets others have the mutex in
// between if that makes maxSteps: what the mutex guards may be different
// afterwards. A goroutine that has waited for the mutex for a millisecond is handed
// it (sync.Mutex is fair from then on), so nobody waits for many holds of one that
// pauses.
func (p *pausingMutex) pause(steps int) {
	p.steps += steps
	if p.steps >= cmp.Or(p.most, maxSteps) {
		p.Unlock()
		p.Lock()
	}
}
