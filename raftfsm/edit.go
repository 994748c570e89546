package raftfsm

// Edit begins in-place changes: each entry copies less of the state, or nothing without a new snapshot.
// Meanwhile the state must not be copied, nor read by other goroutines; use Snapshot.
func (s *State) Edit() {
	s.Tree.Edit()
	s.Sessions.Edit()
	s.quotas.Edit()
	s.past.edit()
	if s.staged != nil {
		s.staged = s.staged.snapshot() // copies of the state keep the old one
		s.staged.edit()
	}
	s.editing = true
}

// Settle ends Edit: a copy of the state is a snapshot again.
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

// Snapshot returns the current state, in constant time. Its copies are snapshots, too, and any number of
// goroutines may read it.
func (s *State) Snapshot() State {
	now := *s
	now.Tree, now.Sessions, now.quotas, now.editing = s.Tree.Snapshot(), s.Sessions.Snapshot(), s.quotas.Snapshot(), false
	now.past, now.staged = s.past.snapshot(), s.staged.snapshot()
	return now
}
