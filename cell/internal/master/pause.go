package master

import (
	"cmp"
	"sync"
	"time"
)

// pausingMutex is the mutex of a master. Every call takes it, and so do the clock
// loop and the proposer, so that no hold may grow with the size of the cell: work
// that does is cut at points where others may come in between, with pause.
//
// It measures one hold of some. The zero value is an unlocked mutex that measures nothing.
type pausingMutex struct {
	mu               sync.Mutex
	line             sync.Mutex           // of patient holders that have paused: the first of them waits for mu, the others for line
	watch            func() time.Duration // may be nil
	held             func(time.Duration)  // is told of each hold that is measured, after it; may be nil
	passed           int                  // holds that are not measured between two that are
	maxStepsOverride int                  // instead of maxSteps: a test's, whose work is small; 0 otherwise

	// Guarded by mu.
	began   time.Duration // by watch, of a hold that is measured
	skipped int           // holds since the last that was
	steps   int           // of the work done in this hold
	limit   int           // steps of this hold
	patient bool          // it is of one who lets others go first
}

// passedHolds is how many holds of a master are not measured between two that are: a call takes the mutex several times, and to
// look at the clock twice and to count each is a twentieth of what a read costs.
const passedHolds = 7

// maxSteps bounds the steps of one hold. A step is something like an event posted,
// a handle forgotten or a lock offered: a microsecond, or a few.
const maxSteps = 512

// fewSteps bounds the steps of the first hold of one who lets others go first.
const fewSteps = maxSteps / 16

// Lock is that of sync.Mutex.
func (p *pausingMutex) Lock() {
	p.mu.Lock()
	p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, maxSteps), false
	if p.skipped++; p.watch != nil && p.isMeasured() {
		p.began = p.watch()
	}
}

// isMeasured reports whether the present hold is measured. Without a watch held is told of each.
func (p *pausingMutex) isMeasured() bool { return p.watch == nil || p.skipped > p.passed }

// LockPatient is Lock for a call whose work may take many holds, and of which clients may
// have tens of thousands under way. If all of those waited for the mutex each time they
// pause, everybody else would wait for one hold of each. So those that have more work
// than some steps line up, and only one of them at a time waits for the mutex.
func (p *pausingMutex) LockPatient() {
	p.Lock()
	p.limit, p.patient = min(p.limit, fewSteps), true
}

// Unlock is that of sync.Mutex.
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

// pause notes that so many steps were done, and lets others have the mutex in
// between if that makes maxSteps (fewSteps, see LockPatient): what the mutex guards may be different
// afterwards. A goroutine that has waited for the mutex for a millisecond is handed
// it (sync.Mutex is fair from then on), so nobody waits for many holds of one that
// pauses.
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
