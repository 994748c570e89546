package sequencer

import (
	"context"
	"sync"
	"sync/atomic"
)

// lock is what a Guard knows of one lock: its newest token, and the requests
// that are inside on the strength of one token.
type lock struct {
	// newest is the highest token let in. It only rises, and only after it was
	// stored.
	newest atomic.Uint64

	mu      sync.Mutex // guards the fields below; held for a few instructions
	inside  map[*section]struct{}
	token   uint64        // of every section inside; meaningless when there is none
	changed chan struct{} // closed when inside has emptied or newest has risen; nil if nobody waits
}

// section is one running request of Guard.Do.
type section struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	seq    Sequencer
}

func newLock(newest uint64) *lock {
	l := &lock{inside: make(map[*section]struct{})}
	l.newest.Store(newest)
	return l
}

// enter waits until no request of a lower token is inside and adds one of seq.
// It fails with staleError as soon as a higher token is known, and with the
// context's end. waited reports whether there was anything to wait for.
//
// Exclusion: sections are added only under mu, only if none of another token is
// inside, and only while newest is not above theirs. So all that are inside
// have one token, and that token only rises.
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

// leave ends a section. Its context is cancelled first, so that whatever still
// watches it is told before a newer token enters.
func (l *lock) leave(s *section) {
	s.cancel(context.Canceled)
	l.mu.Lock()
	delete(l.inside, s)
	if len(l.inside) == 0 {
		l.wake()
	}
	l.mu.Unlock()
}

// supersede tells requests of tokens below newest, inside or waiting, to go.
// The caller has raised l.newest, so none enters after it.
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
	// Cancelling runs code of whoever watches the contexts: not under mu.
	for _, s := range older {
		s.cancel((&staleError{seq: s.seq, newest: newest}).report())
	}
}

// wake lets those who wait look again. The caller holds mu.
func (l *lock) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
