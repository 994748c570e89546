package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// maxSessions limits the sessions of a Cell. A replica takes 2,000 calls at a time over one connection. Each
// session has a KeepAlive pending there, and one more call at its end; the rest is for audits, calls that
// give something back, and the search for the master.
const maxSessions = 1_000

// sessionSet is the set of open sessions of a Cell. A session leaves it when its EndSession was sent or,
// after a loss, when it sends no more KeepAlives.
type sessionSet struct {
	mu       sync.Mutex // guards what follows; take no mutex under it
	open     map[*sessionState]struct{}
	reserved int
	max      int // maxSessions; tests set less
	closed   bool
}

func newSessionSet() *sessionSet {
	return &sessionSet{open: map[*sessionState]struct{}{}, max: maxSessions}
}

// reserve reserves a place for a new session. The caller then calls add or release.
func (s *sessionSet) reserve() *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := len(s.open) + s.reserved; used >= s.max {
		return api.Errorf(api.QuotaExceeded, "sessions of this Cell: %d used, %d allowed; open others over another Cell (Dial)", used, s.max)
	}
	s.reserved++
	return nil
}

func (s *sessionSet) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
}

// add adds a session in its reserved place. It returns false if the Cell was closed.
func (s *sessionSet) add(one *sessionState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	if !s.closed {
		s.open[one] = struct{}{}
	}
	return !s.closed
}

func (s *sessionSet) remove(one *sessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, one)
}

// endAll ends all sessions for this process, and makes add reject others.
func (s *sessionSet) endAll() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, one := range all {
		one.endSession(Closed, "its Cell was closed")
	}
}
