package client

import (
	"maps"
	"slices"
	"sync"
)

// sessions are the open sessions of a Cell. They end with it.
type sessions struct {
	mu     sync.Mutex // guards what follows
	open   map[*belief]struct{}
	closed bool
}

func newSessions() *sessions { return &sessions{open: map[*belief]struct{}{}} }

// add enters a session, and reports whether the Cell is still open.
func (s *sessions) add(b *belief) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.open[b] = struct{}{}
	}
	return !s.closed
}

func (s *sessions) remove(b *belief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, b)
}

// end ends all of them, and lets no other in.
func (s *sessions) end() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, b := range all {
		b.end(Closed, "its Cell was closed")
	}
}
