package raftfsm

// Edit begins a time in which changes are made in place: each entry copies less of the state, or
// nothing if no snapshot was taken since the one before. Meanwhile the state must not be copied, nor
// read by another goroutine; Snapshot takes a snapshot.
func (s *State) Edit() {
	s.Tree.Edit()
	s.Sessions.Edit()
	s.quotas.Edit()
	s.past.edit()
	if s.staged != nil {
		s.staged = s.staged.snapshot() // a copy of the state has the one before
		s.staged.edit()
	}
	s.editing = true
}

// Settle ends what Edit began: a copy of the state is a snapshot again.
func (s *State) Settle() {
	s.Tree.Settle()
	s.Sessions.Settle()
	s.quotas.Settle()
	s.past.settle()
	if s.staged != nil {
		s.staged.settle()
	}
	s.editing = false
}

// Snapshot returns the state as it is now, in constant time. A copy of what it returns is a snapshot,
// too, and any number of goroutines may read it.
func (s *State) Snapshot() State {
	now := *s
	now.Tree, now.Sessions, now.quotas, now.editing = s.Tree.Snapshot(), s.Sessions.Snapshot(), s.quotas.Snapshot(), false
	now.past, now.staged = s.past.snapshot(), s.staged.snapshot()
	return now
}
