package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// mostSessions bounds the sessions of a Cell. A replica takes 2,000 calls at a time over
// a connection. Each session has a KeepAlive there always, and one more call when it
// ends; audits, what gives back, and the search for the master find room beside them.
const mostSessions = 1_000

// sessions are the open sessions of a Cell, each until its end was sent, or, if it was lost,
// it sends no KeepAlives any more. They end with it.
type sessions struct {
	mu      sync.Mutex // guards what follows
	open    map[*belief]struct{}
	opening int
	most    int // mostSessions; tests set less
	closed  bool
}

func newSessions() *sessions { return &sessions{open: map[*belief]struct{}{}, most: mostSessions} }

// enter takes a place for a session that is to be opened. add or leave is to be called
// after it.
func (s *sessions) enter() *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := len(s.open) + s.opening; used >= s.most {
		return api.Errorf(api.QuotaExceeded, "sessions of this Cell: %d used, %d allowed; open others over another Cell (Dial)", used, s.most)
	}
	s.opening++
	return nil
}

// leave gives back the place of a session that was not opened.
func (s *sessions) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
}

// add enters a session, and reports whether the Cell is still open.
func (s *sessions) add(b *belief) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
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
