package master

import (
	"cmp"
	"sync"
	"time"
)

// pausingMutex is the mutex of a master. All calls, the clock loop and the proposer take it, so no hold may
// grow with the cell. Short work takes it by Lock. Long work takes it by hold, and pauses.
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
	steps   int           // done since the last pause of a hold
	limit   int           // of these
	patient bool          // the hold lets others go first
}

// passedHolds is how many holds of a master are not measured between two that are. To measure each, by two
// looks at the clock and a count, would cost a twentieth of a read.
const passedHolds = 7

// maxSteps bounds the steps of one hold. A step is an event posted, a handle forgotten or a lock offered: a
// few microseconds at most.
const maxSteps = 512

// fewSteps bounds the steps of a patient hold before its first pause.
const fewSteps = maxSteps / 16

// Lock locks the mutex for work without pauses.
func (p *pausingMutex) Lock() {
	p.mu.Lock()
	if p.skipped++; p.watch != nil && p.isMeasured() {
		p.began = p.watch()
	}
}

// isMeasured reports whether the current hold is measured; without a watch, all are.
func (p *pausingMutex) isMeasured() bool { return p.watch == nil || p.skipped > p.passed }

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

// hold is a mutex that is held and may pause: what it guards may change meanwhile. A function without a hold
// never releases the mutex.
type hold struct{ mu *pausingMutex }

// hold locks the mutex for work with pauses.
func (p *pausingMutex) hold() hold {
	p.Lock()
	p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, maxSteps), false
	return hold{p}
}

// holdPatiently is hold for a call that may pause often, of which clients may have tens of thousands. If all
// waited for the mutex at each pause, others would wait for a turn of each. So after fewSteps they line up,
// and only one at a time waits for the mutex.
func (p *pausingMutex) holdPatiently() hold {
	h := p.hold()
	p.limit, p.patient = min(p.limit, fewSteps), true
	return h
}

// end unlocks the mutex.
func (h hold) end() { h.mu.Unlock() }

// pause counts steps, and at maxSteps (fewSteps, see holdPatiently) releases the mutex and takes it again. A
// goroutine that has waited for a millisecond gets the mutex next (sync.Mutex is fair then), so none waits
// for many turns of one that pauses.
func (h hold) pause(steps int) {
	p := h.mu
	if p.steps += steps; p.steps < p.limit {
		return
	}
	patient := p.patient
	p.Unlock()
	if patient {
		p.line.Lock()
		defer p.line.Unlock()
	}
	p.hold()
	p.patient = patient
}
