package master

import (
	"cmp"
	"sync"
	"time"
)

// pausingMutex is the mutex of a master. All calls, the clock loop and the proposer take it, so no hold may
// grow with the cell: long work calls pause, where others may take the mutex.
//
// It measures some holds. The zero value is an unlocked mutex that measures none.
type pausingMutex struct {
	mu               sync.Mutex
	line             sync.Mutex           // of patient holders after a pause: the first waits for mu, others for line
	watch            func() time.Duration // may be nil
	held             func(time.Duration)  // called after each measured hold; may be nil
	passed           int                  // unmeasured holds between two measured ones
	maxStepsOverride int                  // for tests with little work, or 0

	// Guarded by mu.
	began   time.Duration // start of a measured hold, by watch
	skipped int           // holds since the last measured one
	steps   int           // done in this hold
	limit   int           // of this hold's steps
	patient bool          // the holder lets others go first
}

// passedHolds is how many holds of a master are not measured between two that are. To measure each, by two
// looks at the clock and a count, would cost a twentieth of a read.
const passedHolds = 7

// maxSteps bounds the steps of one hold. A step is an event posted, a handle forgotten or a lock offered: a
// few microseconds at most.
const maxSteps = 512

// fewSteps bounds the steps of a patient holder's first hold.
const fewSteps = maxSteps / 16

// Lock locks the mutex.
func (p *pausingMutex) Lock() {
	p.mu.Lock()
	p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, maxSteps), false
	if p.skipped++; p.watch != nil && p.isMeasured() {
		p.began = p.watch()
	}
}

// isMeasured reports whether the current hold is measured; without a watch, all are.
func (p *pausingMutex) isMeasured() bool { return p.watch == nil || p.skipped > p.passed }

// LockPatient is Lock for a call of many holds, of which clients may have tens of thousands. If all waited
// for the mutex at each pause, others would wait for one hold of each. So after fewSteps they line up, and
// only one at a time waits for the mutex.
func (p *pausingMutex) LockPatient() {
	p.Lock()
	p.limit, p.patient = min(p.limit, fewSteps), true
}

// Unlock unlocks the mutex.
func (p *pausingMutex) Unlock() {
	var took time.Duration
	var held func(time.Duration)
	if p.isMeasured() {
		if held, p.skipped = p.held, 0; p.watch != nil {
			took = p.watch() - p.began
		}
	}
	p.mu.Unlock()
	if held != nil {
		held(took)
	}
}

// pause counts steps, and at maxSteps (fewSteps, see LockPatient) releases the mutex and takes it again:
// guarded data may change. A goroutine that has waited for a millisecond gets the mutex next (sync.Mutex is
// fair then), so none waits for many holds of one that pauses.
func (p *pausingMutex) pause(steps int) {
	if p.steps += steps; p.steps < p.limit {
		return
	}
	if !p.patient {
		p.Unlock()
		p.Lock()
		return
	}
	p.Unlock()
	p.line.Lock()
	defer p.line.Unlock()
	p.Lock()
	p.patient = true
}
