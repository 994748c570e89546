package raftfsm

import "github.com/chubbylock/chubby/api"

// Check verifies the invariants of the state, for tests and for new snapshots.
func (s State) Check() error {
	if err := s.Tree.Check(); err != nil {
		return err
	}
	if err := s.Sessions.Check(); err != nil {
		return err
	}
	if err := s.Roster.check(); err != nil {
		return err
	}
	if err := s.checkStaged(); err != nil {
		return err
	}
	if err := s.checkPast(); err != nil {
		return err
	}
	for principal, q := range s.Quotas() {
		if err := q.Validate(); err != nil || q == (api.Quota{}) {
			return api.Errorf(api.Corrupt, "the quota of %q, %+v, cannot be", principal, q)
		}
	}
	for n := range s.Tree.All() {
		newest := max(n.Instance, n.Lock, n.Content, n.ACLs)
		if uint64(newest) > s.Counter {
			return api.Errorf(api.Corrupt, "%q is at generation %d, above the cell's counter, %d", n.Name, newest, s.Counter)
		}
		for _, h := range n.Holders {
			if _, ok := s.Sessions.Get(h.Session); !ok {
				return api.Errorf(api.Corrupt, "%q is held by the unknown session %v", n.Name, h.Session)
			}
		}
		for _, o := range n.Openers {
			if _, ok := s.Sessions.Get(o.Session); !ok {
				return api.Errorf(api.Corrupt, "%q is open in the unknown session %v", n.Name, o.Session)
			}
		}
	}
	return nil
}

// checkPast verifies the invariants of past holdings: above all, that no lock had two holders.
func (s *State) checkPast() error {
	nodes, count := 0, 0
	for n := range s.Tree.All() {
		list, ok := s.past.byNode.Get(placeOf(n))
		if !ok {
			continue
		}
		nodes, count = nodes+1, count+len(list)
		if len(list) == 0 || len(list) > api.MaxHoldings {
			return api.Errorf(api.Corrupt, "of the lock of %q %d holdings are remembered", n.Name, len(list))
		}
		for i, h := range list {
			if h.Until < h.Generation || uint64(h.Until) > s.Counter || i > 0 && h.Until < list[i-1].Until || !h.Mode.Valid() || h.End == 0 {
				return api.Errorf(api.Corrupt, "the lock of %q was not held as it is remembered, with token %d until %d", n.Name, h.Generation, h.Until)
			}
			for _, before := range list[:i] {
				if h.Together(*before) {
					return api.Errorf(api.Corrupt, "the lock of %q is remembered as held by two, with tokens %d and %d", n.Name, before.Generation, h.Generation)
				}
			}
			if now := (api.Holding{Mode: n.Mode, Generation: n.Lock}); len(n.Holders) > 0 && h.Together(now) {
				return api.Errorf(api.Corrupt, "the lock of %q is held with token %d, and remembered as held with token %d", n.Name, n.Lock, h.Generation)
			}
		}
	}
	if nodes != s.past.byNode.Len() || count != s.past.count || count > s.past.most {
		return api.Errorf(api.Corrupt, "%d holdings of %d nodes are remembered, and %d of %d are of nodes that there are", s.past.count, s.past.byNode.Len(), count, nodes)
	}
	return nil
}

func (s State) checkStaged() error {
	g := s.staged
	if g == nil {
		return nil
	}
	if err := g.tree.Check(); err != nil {
		return err
	}
	if _, ok := s.Sessions.Get(g.session); !ok {
		return api.Errorf(api.Corrupt, "a backup is restored by the unknown session %v", g.session)
	}
	for n := range s.Tree.OwnedBy(g.session) {
		if g.sealed {
			return api.Errorf(api.Corrupt, "a backup is about to be restored by session %v, which owns %q", g.session, n.Name)
		}
	}
	for one := range s.Sessions.All() {
		if g.sealed && one.ID != g.session && one.Terminating == nil {
			return api.Errorf(api.Corrupt, "a backup is about to be restored, and session %v goes on", one.ID)
		}
	}
	for n := range g.tree.All() {
		if newest := max(n.Instance, n.Lock, n.Content, n.ACLs); uint64(newest) > max(g.Counter, 1) {
			return api.Errorf(api.Corrupt, "%q of a backup is at generation %d, above its counter, %d", n.Name, newest, g.Counter)
		}
	}
	return nil
}
