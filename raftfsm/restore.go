package raftfsm

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// staged is the received part of a backup that will replace the tree and the quotas. It belongs to a session,
// and ends with it.
type staged struct {
	RestoreBegin
	session api.SessionID
	since   int64  // when it began, by the master's clock; for display
	part    uint64 // the last one added
	sealed  bool
	tree    namespace.Tree
	quotas  cowmap.Map[string, api.Quota]
}

// newStaged returns an empty staged backup, edited until State.Settle.
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

func (g *staged) record() *stagedRecord {
	if g == nil {
		return nil
	}
	return &stagedRecord{Announced: g.RestoreBegin, Session: g.session, Part: g.part, Sealed: g.sealed, Nodes: g.tree.Counts().Nodes, Quotas: g.quotas.Len(), SinceUnix: g.since}
}

func (g *staged) snapshot() *staged {
	if g == nil {
		return nil
	}
	now := *g
	now.tree, now.quotas = g.tree.Snapshot(), g.quotas.Snapshot()
	return &now
}

// RestoreGap is the fencing counter's gap above all known numbers when a restored cell replaces the backup's:
// the backup lacks what was issued after it. At 30,000 numbers a second a cell would issue as many in a year;
// 8,000 restores are possible.
const RestoreGap = 1 << 40

// maxRestored is the highest counter that allows the gap: room for as many numbers again remains.
const maxRestored = api.MaxGeneration - 2*RestoreGap

// RestoreWeight returns the weight of the backup's nodes received so far; 0 without a restore.
func (s *State) RestoreWeight() int64 {
	if s.staged == nil {
		return 0
	}
	return s.staged.tree.Counts().Weight()
}

// RestoringSince returns when the current restore began, by the master's clock; for display.
func (s *State) RestoringSince() (unix int64) {
	if s.staged == nil {
		return 0
	}
	return s.staged.since
}

// Restoring returns the session that restores a backup, or 0, and whether the backup is complete, so that other
// sessions end.
func (s *State) Restoring() (by api.SessionID, sealed bool) {
	if s.staged == nil {
		return 0, false
	}
	return s.staged.session, s.staged.sealed
}

// ForBackup returns the state without the secret, restores, the roster, and past holdings, which backups omit.
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
	return s.operate(c.Mutation, func(string) Result {
		id := c.Mutation.Session
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

// restoreBegin begins with an empty tree. The session must not cache: it gets no notice of the changes.
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

// restoreGiveUp drops the staged backup. Sessions that Seal terminated still end.
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

// restoreAdd adds one part. It refuses an invalid part as a whole, and then drops the staged backup.
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
		if q.Principal == "" || len(q.Principal) > api.MaxPrincipal { // or it could not be removed again
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

// restoreSeal ends all other sessions as an operator would: their clients are notified, and keep their holdings
// until they have acknowledged or their leases have ended.
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

// restoreFinish replaces the tree by the staged backup. No other session, and so no lease, lock, handle or
// cache, is left. It keeps the lock-delays of failed sessions.
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

// counterAfter returns the fencing counter after a restore, the generation of all restored nodes: above all
// numbers that this cell and the backup's have issued. So a write on condition of an earlier generation meets
// no other contents of that generation. A cell that restores its own backup just counts on, as it knows what it
// has issued. With a gap, another cell restored later from the same backup would issue the numbers in and above
// that gap again.
func (s *State) counterAfter(g *staged) uint64 {
	if s.hasIssued(&g.RestoreBegin) {
		//mutant: return s.Counter
		return s.Counter + 1
	}
	//mutant: return max(s.Counter, g.Counter) + 1
	return max(s.Counter, g.Counter) + RestoreGap
}

// hasIssued reports whether a backup is this cell's own, and the cell's counter is not behind it.
func (s *State) hasIssued(b *RestoreBegin) bool {
	return b.CellID == s.CellID && b.Counter <= s.Counter
}

// mayOwn returns a refusal while a restore is about to finish: new locks and ephemeral nodes would prevent
// that. Only the operator's own session is left.
func (s *State) mayOwn() error {
	if _, sealed := s.Restoring(); sealed {
		return &refusal.Refusal{Cause: refusal.RestoreTakesNothing}
	}
	return nil
}

// Restore is one step of a restore, in an operator's session; exactly one step is set: Begin, Add for each
// part, Seal, Finish (docs/adr/0029-a-cell-is-restored-through-its-log.md). GiveUp ends it before Finish.
type Restore struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Begin    *RestoreBegin    `cbor:"2,keyasint,omitempty"`
	Add      *RestoreAdd      `cbor:"3,keyasint,omitempty"`
	Seal     *RestoreSeal     `cbor:"4,keyasint,omitempty"`
	Finish   bool             `cbor:"5,keyasint,omitempty"` // the backup replaces the cell's contents

	// GiveUp ends a restore and drops what is staged, so that sessions can begin again. The restoring session
	// sends it. Since no other session may be possible, the master also sends it, without a mutation: for an
	// operator, or after a timeout.
	GiveUp   bool          `cbor:"6,keyasint,omitempty" since:"3"`
	Of       api.SessionID `cbor:"7,keyasint,omitempty" since:"3"` // the session whose restore the master gives up
	Operator string        `cbor:"8,keyasint,omitempty" since:"3"` // on whose request; empty after a timeout
}

// RestoreBegin announces a backup. It replaces an earlier one of the same session.
type RestoreBegin struct {
	Cell    string     `cbor:"1,keyasint"` // the backup's cell
	CellID  api.CellID `cbor:"2,keyasint"`
	Level   int        `cbor:"3,keyasint"` // its feature level
	Counter uint64     `cbor:"4,keyasint"` // its fencing counter, or more if more was issued
	Nodes   int        `cbor:"5,keyasint"` // number of nodes to add, including the root
	Quotas  int        `cbor:"6,keyasint,omitempty"`

	Source BackupSource `cbor:"7,keyasint,omitempty" since:"3"`
}

// BackupSource says how a backup was made, for people; nothing depends on it.
type BackupSource struct {
	Index     uint64 `cbor:"1,keyasint,omitempty"` // the last entry in it
	TakenUnix int64  `cbor:"2,keyasint,omitempty"` // by its maker's clock
	Recovered string `cbor:"3,keyasint,omitempty"` // if the cell had lost its majority, the ID of the replica whose directory it was made from; empty if a master made it
}

func (b BackupSource) isWellFormed() bool {
	return b.Recovered == "" || len(b.Recovered) <= maxMemberID && api.ValidCell(b.Recovered)
}

// RestoreAdd is one part of the backup. Parents come before their children.
type RestoreAdd struct {
	Part   uint64            `cbor:"1,keyasint"` // 1, 2, …
	Nodes  []*namespace.Node `cbor:"2,keyasint,omitempty"`
	Quotas []PrincipalQuota  `cbor:"3,keyasint,omitempty"`
}

// Encode writes a part for its transfer to the cell.
func (a RestoreAdd) Encode() ([]byte, error) { return entryCodec.enc.Marshal(a) }

// DecodeRestoreAdd reads a part of Encode. Apply decides whether the nodes are valid. The length of a part,
// which comes from a client, limits the number of its nodes.
func DecodeRestoreAdd(data []byte) (*RestoreAdd, error) {
	a := new(RestoreAdd)
	if err := newDecMode(max(maxAddedQuotas, len(data)/leastNode)).Unmarshal(data, a); err != nil {
		return nil, &api.Error{Code: api.InvalidArgument, Message: "this is no part of a backup", Err: err}
	}
	return a, nil
}

// RestoreSeal says that the backup is complete. Then all other sessions end, and no more begin.
type RestoreSeal struct {
	Why string `cbor:"1,keyasint,omitempty"` // for the sessions' clients
}

// PrincipalQuota is the quota of a principal.
type PrincipalQuota struct {
	Principal string    `cbor:"1,keyasint"`
	Quota     api.Quota `cbor:"2,keyasint"`
}

// Limits of a part's lists: the minimum size of an encoded node in bytes, and the quotas that a part of any
// length may have.
const (
	leastNode      = 16
	maxAddedQuotas = 1000
)
