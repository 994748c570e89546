package term

import (
	"sync"
	"time"
)

// Patience is how long a wait may be silent.
const Patience = 2 * time.Second

// Progress shows the state of a wait to a person, once the wait is longer than Patience,
// and again whenever the state changes. Its methods may be called by several goroutines.
type Progress[S any] struct {
	key   func(S) string
	show  func(S)
	timer *time.Timer
	done  chan struct{} // closed when the timer's function has run

	showing sync.Mutex // held while a state is shown: states are shown in the order in which they came

	mu      sync.Mutex // guards what follows
	state   S
	late    bool   // Patience has passed
	shown   string // key of the state that was shown last
	stopped bool   // no more states are shown
}

// NewProgress begins to show the state of a wait, which is the zero S until the first
// Update. Two states between which only time has passed have the same key, which is not
// empty. show is not called twice at once, and not after Stop.
func NewProgress[S any](key func(S) string, show func(S)) *Progress[S] {
	p := &Progress[S]{key: key, show: show, done: make(chan struct{})}
	p.timer = time.AfterFunc(Patience, func() {
		defer close(p.done)
		p.change(func() { p.late = true })
	})
	return p
}

// Update sets the state.
func (p *Progress[S]) Update(state S) { p.change(func() { p.state = state }) }

// change changes what f changes, and shows the state if it is time for that.
func (p *Progress[S]) change(f func()) {
	p.showing.Lock()
	defer p.showing.Unlock()
	p.mu.Lock()
	f()
	state, key := p.state, p.key(p.state)
	show := p.late && !p.stopped && key != p.shown
	if show {
		p.shown = key
	}
	p.mu.Unlock()
	if show {
		p.show(state)
	}
}

// Stop ends the progress when the wait has ended.
func (p *Progress[S]) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	if !p.timer.Stop() {
		<-p.done
	}
}

// Last returns the latest state.
func (p *Progress[S]) Last() S {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
