package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// staged is what is to take the place of the tree and the quotas, as far as it has arrived. It belongs to a
// session, and is forgotten when that ends.
type staged struct {
	RestoreBegin
	session api.SessionID
	since   int64  // when it was begun, by the clock of the master; for display
	part    uint64 // the last one that was added
	sealed  bool
	tree    namespace.Tree
	quotas  cowmap.Map[string, api.Quota]
}

// newStaged returns what is staged before anything has arrived. It is edited until State.Settle.
func newStaged(c RestoreBegin, by api.SessionID, since int64) *staged {
	fresh := NewState()
	g := &staged{RestoreBegin: c, session: by, since: since, tree: fresh.Tree, quotas: fresh.quotas}
	g.edit()
	return g
}

func (g *staged) edit() {
	g.tree.Edit()
	g.quotas.Edit()
}

func (g *staged) settle() {
	g.tree.Settle()
	g.quotas.Settle()
}

// record returns what a snapshot says of it, nil of none.
func (g *staged) record() *stagedRecord {
	if g == nil {
		return nil
	}
	return &stagedRecord{Announced: g.RestoreBegin, Session: g.session, Part: g.part, Sealed: g.sealed, Nodes: g.tree.Counts().Nodes, Quotas: g.quotas.Len(), SinceUnix: g.since}
}

// snapshot returns a copy, which does not change.
func (g *staged) snapshot() *staged {
	if g == nil {
		return nil
	}
	now := *g
	now.tree, now.quotas = g.tree.Snapshot(), g.quotas.Snapshot()
	return &now
}

// RestoreGap is what the fencing counter is raised by, above everything that is known to have been issued, when a cell takes the place
// of the one in the backup: a backup does not know what was issued after it. A cell would have to issue 30,000 numbers a second for a year
// to reach it, and can be restored 8,000 times.
const RestoreGap = 1 << 40

// maxRestored is the highest counter above which the gap can be left: then there is room for as many numbers again.
const maxRestored = api.MaxGeneration - 2*RestoreGap

// RestoreWeight returns what the nodes weigh of the backup that is being restored, as far as they have arrived; 0 if none is.
func (s *State) RestoreWeight() int64 {
	if s.staged == nil {
		return 0
	}
	return s.staged.tree.Counts().Weight()
}

// RestoringSince returns when the restore was begun that goes on, by the clock of the master then; for display.
func (s *State) RestoringSince() (unix int64) {
	if s.staged == nil {
		return 0
	}
	return s.staged.since
}

// Restoring returns the session of the operator who restores the cell from a backup, 0 if nobody does, and
// whether the backup is complete, so that other sessions are ended.
func (s *State) Restoring() (by api.SessionID, sealed bool) {
	if s.staged == nil {
		return 0, false
	}
	return s.staged.session, s.staged.sealed
}

// ForBackup returns the state without what no backup has: the secret, a backup that is being restored or was, which replicas there are, and
// who held what.
func (s State) ForBackup() State {
	//mutant: s.Secret, s.staged, s.Origin, s.Roster, s.Restored = nil, nil, "", Roster{}, nil
	//mutant: s.Secret, s.Origin, s.Roster, s.past, s.Restored = nil, "", Roster{}, newPast(s.past.most), nil //by TestRestoreIsInterrupted of ./cell
	//mutant: s.staged, s.Origin, s.Roster, s.past, s.Restored = nil, "", Roster{}, newPast(s.past.most), nil //by TestBackup of ./internal/backup
	s.Secret, s.staged, s.Origin, s.Roster, s.past, s.Restored = nil, nil, "", Roster{}, newPast(s.past.most), nil
	return s
}

func (s *State) restore(c *Restore, wall int64) Result {
	if c.GiveUp && c.Mutation.Session == 0 {
		return s.restoreGiveUp(c.Of, c.Operator)
	}
	return s.once(c.Mutation, nil, func() Result {
		id := c.Mutation.Session
		//mutant: if err := s.PermitOperator(s.principal(id)); false { _ = err
		if err := s.PermitOperator(s.principal(id)); err != nil {
			return refuse(err)
		}
		if c.Begin != nil {
			return s.restoreBegin(id, c.Begin, wall)
		}
		if s.staged == nil || s.staged.session != id {
			return refuse(&refusal.Refusal{Cause: refusal.RestoreNotBegun})
		}
		switch {
		case c.Add != nil:
			return s.restoreAdd(c.Add)
		case c.Seal != nil:
			return s.restoreSeal(c.Seal.Why)
		case c.Finish:
			return s.restoreFinish(wall)
		case c.GiveUp:
			return s.restoreGiveUp(id, "")
		}
		return refuse(&refusal.Refusal{Cause: refusal.EmptyCommand})
	})
}

// restoreBegin begins with an empty tree. The session must not cache: nothing tells it of what changes.
func (s *State) restoreBegin(id api.SessionID, c *RestoreBegin, wall int64) Result {
	who, _ := s.Sessions.Get(id)
	switch {
	case s.staged != nil && s.staged.session != id:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreByOther, Session: s.staged.session, Principal: s.principal(s.staged.session)})
	case c.Level > s.Level:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreLevel, Used: int64(c.Level), Allowed: int64(s.Level)})
	case !s.hasIssued(c) && max(c.Counter, s.Counter) > maxRestored:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreCounter, Current: api.Generation(max(c.Counter, s.Counter)), Allowed: maxRestored})
	case who.MayCache:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreCaches})
	case !c.Source.isWellFormed():
		return refuse(&refusal.Refusal{Cause: refusal.MemberMalformed})
	}
	s.staged = newStaged(*c, id, wall)
	return Result{}
}

// restoreGiveUp forgets what is staged. The sessions that Seal was to end, end.
func (s *State) restoreGiveUp(of api.SessionID, operator string) Result {
	if operator != "" {
		if err := s.PermitOperator(operator); err != nil {
			return refuse(err)
		}
	}
	if s.staged == nil || s.staged.session != of {
		return refuse(&refusal.Refusal{Cause: refusal.RestoreNotBegun})
	}
	s.staged = nil
	return Result{GaveUp: true}
}

// restoreAdd adds one part. A part that cannot be is refused whole, and nothing of it stays: what was
// staged is forgotten then, for a part of it is of no use.
func (s *State) restoreAdd(c *RestoreAdd) Result {
	g := s.staged
	switch {
	case g.sealed:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreSealed})
	case c.Part != g.part+1:
		return refuse(&refusal.Refusal{Cause: refusal.RestorePart, Used: int64(c.Part), Allowed: int64(g.part + 1)})
	}
	for _, n := range c.Nodes {
		if err := g.tree.Adopt(n, api.Generation(g.Counter)); err != nil {
			s.staged = nil
			return refuse(err)
		}
	}
	for _, q := range c.Quotas {
		if q.Principal == "" || len(q.Principal) > api.MaxPrincipal { // nobody could take it away again
			s.staged = nil
			return refuse(&refusal.Refusal{Cause: refusal.RestoreNode})
		}
		if q.Quota.Validate() != nil || q.Quota == (api.Quota{}) {
			s.staged = nil
			return refuse(&refusal.Refusal{Cause: refusal.QuotaNegative, Quota: &q.Quota})
		}
		g.quotas.Set(q.Principal, q.Quota)
	}
	g.part = c.Part
	return Result{}
}

// restoreSeal ends all other sessions, as an operator would: their clients are told, and what they hold is
// theirs until they have acknowledged that or their leases are over.
func (s *State) restoreSeal(why string) Result {
	g := s.staged
	for n := range s.Tree.OwnedBy(g.session) {
		return refuse(&refusal.Refusal{Cause: refusal.RestoreOwns, Name: n.Name})
	}
	//mutant: if nodes := g.tree.Counts().Nodes; nodes < 0 {
	if nodes := g.tree.Counts().Nodes; nodes != g.Nodes || g.quotas.Len() != g.Quotas {
		return refuse(&refusal.Refusal{Cause: refusal.RestoreIncomplete, Used: int64(nodes), Allowed: int64(g.Nodes)})
	}
	if len(why) > api.MaxReason {
		return refuse(&refusal.Refusal{Cause: refusal.TerminationTooLong, Allowed: api.MaxReason})
	}
	g.sealed = true
	by := refusal.Intervention{Principal: s.principal(g.session), Why: why}
	var r Result
	for one := range s.Sessions.All() {
		if one.ID != g.session {
			r.Terminating = append(r.Terminating, one.ID)
		}
	}
	for _, id := range r.Terminating {
		_ = s.Sessions.Terminate(id, by) // it exists, and the reason is short
	}
	return r
}

// restoreFinish puts what is staged in the place of the tree. No other session is left: so nobody has a lease, a
// lock, a handle or anything cached, and what failed sessions left behind, their lock-delays, is kept.
func (s *State) restoreFinish(wall int64) Result {
	g := s.staged
	switch {
	case !g.sealed:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreUnsealed})
	case s.Sessions.Len() > 1:
		return refuse(&refusal.Refusal{Cause: refusal.RestoreSessions, Used: int64(s.Sessions.Len() - 1)})
	}
	for name, d := range s.Tree.Delays() {
		//mutant: _, _ = name, d //by TestRestoreWaitsForHolders of ./cell
		g.tree.RestoreDelay(name, d)
	}
	counter := s.counterAfter(g)
	g.tree.Renew(api.Generation(counter))
	r := Result{Restored: true}
	for n := range g.tree.All() {
		if n.Dying() {
			r.Dying = append(r.Dying, n.Ref())
		}
	}
	if g.Cell == s.Cell && g.CellID != s.CellID {
		s.Origin, s.CellID = cmp.Or(s.Origin, s.CellID), g.CellID
	}
	s.Counter = counter
	//mutant: s.Tree, s.quotas, s.staged = g.tree, g.quotas, nil
	s.Tree, s.quotas, s.past, s.staged = g.tree, g.quotas, newPast(s.past.most), nil
	s.past.edit()
	s.Restored = &Restoration{Source: g.Source, AtUnix: wall, Counter: s.Counter}
	return r
}

// counterAfter returns the fencing counter after a restore, which is the generation of all that comes with it: above what this cell has
// ever issued, and what the backup's has. So a write on condition of a generation that was read before meets no other contents of that
// generation. A cell that goes back to a backup of its own goes on counting: it knows what it has
// issued since. If it left a gap, too, a later cell that is restored from the same backup, and cannot know of this, would issue
// the numbers in and above that gap once more.
func (s *State) counterAfter(g *staged) uint64 {
	if s.hasIssued(&g.RestoreBegin) {
		//mutant: return s.Counter
		return s.Counter + 1
	}
	//mutant: return max(s.Counter, g.Counter) + 1
	return max(s.Counter, g.Counter) + RestoreGap
}

// hasIssued reports whether a backup is one of this cell's own, and the cell's counter is not behind it.
func (s *State) hasIssued(b *RestoreBegin) bool {
	return b.CellID == s.CellID && b.Counter <= s.Counter
}

// mayOwn returns a refusal if nobody may get a lock, or open an ephemeral node, because a restore is about to finish: else it could not
// finish, after it has ended all sessions. Only the operator's own session is left.
func (s *State) mayOwn() error {
	if _, sealed := s.Restoring(); sealed {
		return &refusal.Refusal{Cause: refusal.RestoreTakesNothing}
	}
	return nil
}
