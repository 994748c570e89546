package main

import (
	"sync"
	"time"
)

// patience is how long a wait may be silent.
const patience = 2 * time.Second

// progress shows the state of a wait to a person, once the wait is longer than patience,
// and again whenever the state changes. Its one goroutine, the timer's, has ended when
// stop returns.
type progress[S any] struct {
	key   func(S) string // not empty, and equal for states between which only time has passed
	show  func(S)
	timer *time.Timer
	done  chan struct{} // closed when the timer's function has run

	showing sync.Mutex // held while a state is shown: states are shown in the order in which they came

	mu      sync.Mutex // guards what follows
	state   S
	late    bool   // patience has passed
	shown   string // key of the state that was shown last
	stopped bool   // no more states are shown
}

func newProgress[S any](key func(S) string, show func(S)) *progress[S] {
	p := &progress[S]{key: key, show: show, done: make(chan struct{})}
	p.timer = time.AfterFunc(patience, func() {
		defer close(p.done)
		p.change(func() { p.late = true })
	})
	return p
}

// update sets the state.
func (p *progress[S]) update(state S) { p.change(func() { p.state = state }) }

// change changes what f changes, and shows the state if it is time for that.
func (p *progress[S]) change(f func()) {
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

func (p *progress[S]) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	if !p.timer.Stop() {
		<-p.done
	}
}

// last returns the latest state.
func (p *progress[S]) last() S {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
