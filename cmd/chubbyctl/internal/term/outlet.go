package term

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"
)

// Outlet is standard output, or error, whose reader may have stopped (a pager, a
// program that hangs). Write waits for the reader until a signal has asked for the end,
// and then only for a moment: meanwhile a lock is held, or a session kept. It notes the first
// write that fails, since not everything that writes says so: cobra's help has no error.
type Outlet struct {
	w     io.Writer
	asked <-chan struct{} // closed when a signal has asked for the end

	failed atomic.Pointer[error] // of the first write that could not be done; nil if there was none
}

// NewOutlet returns an outlet to w. asked is closed when a signal has asked for the end.
func NewOutlet(w io.Writer, asked <-chan struct{}) *Outlet { return &Outlet{w: w, asked: asked} }

var errUnread = errors.New("nobody reads what is written, and a signal has asked for the end")

// Write writes to the writer behind. If it gives up, the text may still be written until
// the end of the process.
func (o *Outlet) Write(text []byte) (n int, err error) {
	written := make(chan struct{})
	own := bytes.Clone(text)
	var count int
	var failed error
	go func() { // ends with the process, at the latest
		defer close(written)
		if count, failed = o.w.Write(own); failed != nil {
			o.failed.CompareAndSwap(nil, &failed)
		}
	}()
	select {
	case <-written:
		return count, failed
	case <-o.asked:
	}
	if !within(written, lastBound) {
		return 0, errUnread
	}
	return count, failed
}

// Failure returns the error of the first write that has failed; nil if none has. A write that was given up because nobody
// reads is none.
func (o *Outlet) Failure() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Bare returns the writer behind an outlet: a command that writes to a file itself has to
// be given the file.
func Bare(w io.Writer) io.Writer {
	if o, ok := w.(*Outlet); ok {
		return o.w
	}
	return w
}

// Speaker writes lines for people to standard error, one at a time, and keeps its
// callers for a moment at most: the reader may have stopped, while a lock is renewed,
// held or waited for. Its goroutine ends when all lines are written; Finish waits for
// that.
type Speaker struct {
	w io.Writer

	mu    sync.Mutex    // guards what follows
	lines [][]byte      // to be written
	idle  chan struct{} // closed when all lines are written; nil if they are
}

const (
	maxLines    = 64                     // that wait to be written; of more, the first are dropped: the last say how it ended
	speechBound = 200 * time.Millisecond // how long Write waits for its line to be written
	lastBound   = 2 * time.Second        // how long to wait for the last words after a signal has asked for the end
)

// NewSpeaker returns a speaker that writes to w, or to the writer behind an Outlet.
func NewSpeaker(w io.Writer) *Speaker { return &Speaker{w: Bare(w)} }

// Write has a line written, and waits a moment for that, unless a line before it is
// stuck. It never fails: there is nowhere to report it.
func (s *Speaker) Write(line []byte) (int, error) {
	s.mu.Lock()
	stuck := s.idle != nil
	s.lines = append(s.lines, bytes.Clone(line))
	s.lines = s.lines[max(0, len(s.lines)-maxLines):]
	if !stuck {
		s.idle = make(chan struct{})
		go s.writeLines(s.idle)
	}
	idle := s.idle
	s.mu.Unlock()
	if !stuck {
		within(idle, speechBound)
	}
	return len(line), nil
}

// writeLines writes the lines that there are, and ends.
func (s *Speaker) writeLines(idle chan<- struct{}) {
	defer close(idle)
	for {
		s.mu.Lock()
		if len(s.lines) == 0 {
			s.idle = nil
			s.mu.Unlock()
			return
		}
		line := s.lines[0]
		s.lines = s.lines[1:]
		s.mu.Unlock()
		_, _ = s.w.Write(line)
	}
}

// Finish waits until all lines are written, as the last thing that a program does. asked
// is whether a signal has asked for the end: then it does not wait for long. Else it
// waits until the lines are read, or until one of the interrupts ends this process: they
// have their default action again.
func (s *Speaker) Finish(asked bool, interrupts ...os.Signal) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	switch {
	case idle == nil:
		return
	case asked:
		within(idle, lastBound)
		return
	}
	if len(interrupts) > 0 { // without any, Reset would be of all signals
		signal.Reset(interrupts...)
	}
	<-idle
}

// within reports whether something is done within a time.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

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
