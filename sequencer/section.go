package sequencer

import (
	"context"
	"sync"
	"sync/atomic"
)

// lock is what a Guard knows of one lock, with all other Guards of its FileStore:
// its newest token, and the requests inside, which all have one token.
type lock struct {
	// newest is the highest token let in. It only rises, and only after it was
	// stored.
	newest atomic.Uint64

	mu      sync.Mutex // guards the fields below; held for a few instructions
	inside  map[*section]struct{}
	token   uint64        // of every section inside; without meaning if there is none
	changed chan struct{} // closed when inside has become empty or newest has risen; nil if no request waits
}

// section is one running request of Guard.Do.
type section struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	seq    Sequencer
}

func newLock() *lock { return &lock{inside: make(map[*section]struct{})} }

// raise makes a token that was stored the newest, unless another Guard has
// stored a higher one.
func (l *lock) raise(token uint64) {
	for {
		now := l.newest.Load()
		//mutants: same (an equal token is set again)
		if now >= token || l.newest.CompareAndSwap(now, token) {
			return
		}
	}
}

// enter waits until no request of a lower token is inside and adds one of seq.
// It fails with staleError as soon as a higher token is known, and with the
// context's end. waited reports whether it had to wait.
//
// Exclusion: sections are added only under mu, only if no section of another
// token is inside, and only while newest is not above their token. So all that
// are inside have one token, and that token only rises.
func (l *lock) enter(ctx context.Context, seq Sequencer) (s *section, waited bool, err error) {
	for ; ; waited = true {
		if ctx.Err() != nil {
			return nil, waited, ended(ctx, seq)
		}
		l.mu.Lock()
		if newest := l.newest.Load(); newest > seq.Token() {
			l.mu.Unlock()
			return nil, waited, &staleError{seq: seq, newest: newest}
		}
		if len(l.inside) == 0 || l.token == seq.Token() {
			s = &section{seq: seq}
			s.ctx, s.cancel = context.WithCancelCause(ctx)
			l.inside[s] = struct{}{}
			l.token = seq.Token()
			l.mu.Unlock()
			return s, waited, nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// leave ends a section. It cancels the context first, so that code that still
// watches the context notices before a newer token enters.
func (l *lock) leave(s *section) {
	s.cancel(context.Canceled)
	l.mu.Lock()
	delete(l.inside, s)
	//mutants: same (who is woken looks, and waits again)
	if len(l.inside) == 0 {
		l.wake()
	}
	l.mu.Unlock()
}

// supersede cancels requests of tokens below newest, inside or waiting. The
// caller has raised l.newest, so none of them enters afterwards.
func (l *lock) supersede(newest uint64) {
	var older []*section
	l.mu.Lock()
	for s := range l.inside {
		if s.seq.Token() < newest {
			older = append(older, s)
		}
	}
	l.wake()
	l.mu.Unlock()
	// Cancelling runs code of those that watch the contexts: do it without mu.
	for _, s := range older {
		s.cancel((&staleError{seq: s.seq, newest: newest}).report())
	}
}

// wake makes the waiting requests check again. The caller holds mu.
func (l *lock) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
