package raftfsm

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Entry is the contents of one Raft log entry: a batch of commands, proposed by
// the master of one epoch.
type Entry struct {
	Epoch    api.Epoch `cbor:"1,keyasint"`
	Wall     int64     `cbor:"2,keyasint,omitempty"` // the proposer's seconds since 1970; for display only, never compared
	Commands []Command `cbor:"3,keyasint"`
}

// Command is one change; exactly one field is set.
type Command struct {
	NewEpoch      *NewEpoch      `cbor:"1,keyasint,omitempty"`
	CreateSession *CreateSession `cbor:"2,keyasint,omitempty"`
	RaiseLease    *RaiseLease    `cbor:"3,keyasint,omitempty"`
	EndSessions   *EndSessions   `cbor:"4,keyasint,omitempty"`
	Open          *Open          `cbor:"5,keyasint,omitempty"`
	Close         *Close         `cbor:"6,keyasint,omitempty"`
	SetContents   *SetContents   `cbor:"7,keyasint,omitempty"`
	Delete        *Delete        `cbor:"8,keyasint,omitempty"`
	Acquire       *Acquire       `cbor:"9,keyasint,omitempty"`
	Release       *Release       `cbor:"10,keyasint,omitempty"`
	EndDelay      *EndDelay      `cbor:"11,keyasint,omitempty"`
	Cancel        *Cancel        `cbor:"12,keyasint,omitempty"`
	Remove        *Remove        `cbor:"13,keyasint,omitempty"`
	SetACL        *SetACL        `cbor:"14,keyasint,omitempty"`
	Revoke        *Revoke        `cbor:"15,keyasint,omitempty"`
	Evict         *Evict         `cbor:"16,keyasint,omitempty"`
	Terminate     *Terminate     `cbor:"17,keyasint,omitempty"`
	SetQuota      *SetQuota      `cbor:"18,keyasint,omitempty"`
	RaiseLevel    *RaiseLevel    `cbor:"19,keyasint,omitempty"`
	Restore       *Restore       `cbor:"20,keyasint,omitempty" since:"3"`
	ChangeMembers *ChangeMembers `cbor:"21,keyasint,omitempty" since:"3"`
	SettleMember  *SettleMember  `cbor:"22,keyasint,omitempty" since:"3"`
	Txn           *Txn           `cbor:"23,keyasint,omitempty" since:"3"`
}

// By returns the session whose request a command is, 0 if the command is the
// master's own.
func (c Command) By() api.SessionID {
	switch {
	case c.Open != nil:
		return c.Open.Mutation.Session
	case c.Close != nil:
		return c.Close.Mutation.Session
	case c.SetContents != nil:
		return c.SetContents.Mutation.Session
	case c.Delete != nil:
		return c.Delete.Mutation.Session
	case c.Acquire != nil && len(c.Acquire.Claims) == 1:
		return c.Acquire.Claims[0].Mutation.Session
	case c.Release != nil:
		return c.Release.Mutation.Session
	case c.Cancel != nil:
		return c.Cancel.Mutation.Session
	case c.SetACL != nil:
		return c.SetACL.Mutation.Session
	case c.Revoke != nil:
		return c.Revoke.Mutation.Session
	case c.Terminate != nil:
		return c.Terminate.Mutation.Session
	case c.SetQuota != nil:
		return c.SetQuota.Mutation.Session
	case c.RaiseLevel != nil:
		return c.RaiseLevel.Mutation.Session
	case c.Restore != nil:
		return c.Restore.Mutation.Session
	case c.ChangeMembers != nil:
		return c.ChangeMembers.Mutation.Session
	case c.Txn != nil:
		return c.Txn.Mutation.Session
	}
	return 0
}

// Successions returns the locks that a command grants or hands on, each with its claims.
func (c Command) Successions() []Succession {
	switch {
	case c.Acquire != nil:
		return []Succession{c.Acquire.Succession}
	case c.Release != nil:
		return c.Release.Successions
	case c.Close != nil:
		return c.Close.Successions
	case c.EndSessions != nil:
		return c.EndSessions.Successions
	case c.EndDelay != nil:
		return c.EndDelay.Successions
	case c.Revoke != nil:
		return c.Revoke.Successions
	case c.Evict != nil:
		return c.Evict.Successions
	}
	return nil
}

// NewEpoch is a new master's first command (Chubby §2.9, step 1). The first one
// of a cell bootstraps it with the id and secret that it proposes; those of
// later ones are ignored.
type NewEpoch struct {
	Cell   string     `cbor:"1,keyasint"`
	CellID api.CellID `cbor:"2,keyasint"`
	Secret []byte     `cbor:"3,keyasint"`

	Level int `cbor:"4,keyasint,omitempty"` // the level at which the cell begins

	RestoreAccess bool `cbor:"5,keyasint,omitempty"` // restore everybody's access to the ACLs, as an operator of the master's machine wants it

	Operators []string `cbor:"6,keyasint,omitempty" since:"3"` // of the cell when it begins: principals, or "*" for everybody
}

// CreateSession adds a session, or finds the session with that nonce.
type CreateSession struct {
	Nonce     []byte        `cbor:"1,keyasint"`
	Principal string        `cbor:"2,keyasint,omitempty"`
	Host      string        `cbor:"3,keyasint,omitempty"`
	PID       int           `cbor:"4,keyasint,omitempty"`
	Lease     time.Duration `cbor:"5,keyasint"`
	MayCache  bool          `cbor:"6,keyasint,omitempty"`

	CacheLease bool `cbor:"7,keyasint,omitempty" since:"2"` // it uses what it has cached only under cache leases
}

// RaiseLease raises the longest lease a session may be granted. It commits
// before the first such grant, so that a new master knows the longest lease
// that its predecessor may have granted.
type RaiseLease struct {
	Session api.SessionID `cbor:"1,keyasint"`
	Lease   time.Duration `cbor:"2,keyasint"`
}

// EndSessions ends sessions. In the same step, their locks are released and
// their handles are removed from the openers of ephemeral nodes.
type EndSessions struct {
	Ends        []End        `cbor:"1,keyasint"`
	Successions []Succession `cbor:"2,keyasint,omitempty"`
}

// End is the end of one session.
type End struct {
	Session      api.SessionID `cbor:"1,keyasint"`
	Reason       api.EndReason `cbor:"2,keyasint"`
	Acknowledged bool          `cbor:"3,keyasint,omitempty"`           // its client has acknowledged the end, and uses nothing of it
	FailOver     bool          `cbor:"4,keyasint,omitempty" since:"3"` // of one that expired: its client was not heard of since the epoch began
}

// Failed reports whether the session leaves its lock-delays behind. It does not
// if its client knew of the end.
func (e End) Failed() bool { return e.Reason != api.ByClose && !e.Acknowledged }

// why returns how what the session held has ended.
func (e End) why() api.EndReason {
	if e.FailOver {
		return api.ByFailOver
	}
	return e.Reason
}

// Succession names the claims that are to be granted a lock next, in their
// order. A command that frees locks carries one for each of them that has
// waiters. A succession of a lock that the command did not free does nothing.
type Succession struct {
	Lock   namespace.Ref `cbor:"1,keyasint"`
	Claims []Claim       `cbor:"2,keyasint"`
}

// Claim is one request for a lock: Acquire's or TryAcquire's. A grant is the
// stored answer of that request, so only the first command that grants it has
// an effect.
type Claim struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Handle        api.HandleID     `cbor:"2,keyasint"`
	Mode          api.LockMode     `cbor:"3,keyasint"`
	Delay         time.Duration    `cbor:"4,keyasint,omitempty"`
	Reason        string           `cbor:"5,keyasint,omitempty"`
	Try           bool             `cbor:"6,keyasint,omitempty"` // do not wait: answer at once if the lock is not free
	Preconditions []Precondition   `cbor:"7,keyasint,omitempty"`

	DeclaredOwner string `cbor:"8,keyasint,omitempty" since:"3"` // for whom the session asks; empty: for itself
}

// Open opens a node through the log: because it may have to be created, or
// because it is ephemeral and its openers are counted. The handle's id is the
// request's number.
type Open struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Name          api.Name         `cbor:"2,keyasint"`
	Create        api.Create       `cbor:"3,keyasint,omitempty"`
	Kind          api.Kind         `cbor:"4,keyasint,omitempty"` // 0: either, if the node exists
	Ephemeral     bool             `cbor:"5,keyasint,omitempty"`
	Contents      []byte           `cbor:"6,keyasint,omitempty"`
	ACL           api.ACL          `cbor:"7,keyasint"`
	Rights        namespace.Rights `cbor:"8,keyasint,omitempty"` // what the handle may be used for
	Preconditions []Precondition   `cbor:"9,keyasint,omitempty"`
}

// Close releases what a handle holds of a node.
type Close struct {
	Mutation    session.Mutation `cbor:"1,keyasint"`
	Node        namespace.Ref    `cbor:"2,keyasint"`
	Handle      api.HandleID     `cbor:"3,keyasint"`
	Successions []Succession     `cbor:"4,keyasint,omitempty"`
}

// SetContents replaces a file's contents.
type SetContents struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Node          namespace.Ref    `cbor:"2,keyasint"`
	Contents      []byte           `cbor:"3,keyasint,omitempty"`
	IfContent     *api.Generation  `cbor:"4,keyasint,omitempty"`
	Preconditions []Precondition   `cbor:"5,keyasint,omitempty"`
}

// SetACL replaces a node's ACL names by those that are not empty.
type SetACL struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Node          namespace.Ref    `cbor:"2,keyasint"`
	ACL           api.ACL          `cbor:"3,keyasint"`
	IfACLs        *api.Generation  `cbor:"4,keyasint,omitempty"`
	Preconditions []Precondition   `cbor:"5,keyasint,omitempty"`
}

// Delete removes a node.
type Delete struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Node          namespace.Ref    `cbor:"2,keyasint"`
	Handle        api.HandleID     `cbor:"3,keyasint"`
	Preconditions []Precondition   `cbor:"4,keyasint,omitempty"`
}

// Acquire grants a lock to the claims that can have it.
type Acquire struct {
	Succession
}

// Release releases a lock and hands it on in the same step.
type Release struct {
	Mutation    session.Mutation `cbor:"1,keyasint"`
	Lock        namespace.Ref    `cbor:"2,keyasint"`
	Handle      api.HandleID     `cbor:"3,keyasint"`
	Generation  api.Generation   `cbor:"4,keyasint"`
	Successions []Succession     `cbor:"5,keyasint,omitempty"`
}

// EndDelay ends a lock-delay that the master has counted, and hands the lock
// on.
type EndDelay struct {
	Name        api.Name     `cbor:"1,keyasint"`
	ID          uint64       `cbor:"2,keyasint"`
	Successions []Succession `cbor:"3,keyasint,omitempty"`
}

// Cancel withdraws a request that is not done yet; if the request is done, the
// result is its answer (Chubby §4.4). The mutation is that of the request; its
// hash does not matter. With a refusal it is the master that cancels the
// request: a retry of the same request, with the same hash, gets this refusal.
type Cancel struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Refusal  *refusal.Refusal `cbor:"2,keyasint,omitempty"`
}

// Remove removes dying ephemeral nodes.
type Remove struct {
	Nodes []namespace.Ref `cbor:"1,keyasint"`
}

// Revoke begins to take a lock away from its holders, for an operator. The lock is free once they
// have acknowledged that (Evict) or their sessions have ended; with Now it is free at once.
type Revoke struct {
	Mutation    session.Mutation `cbor:"1,keyasint"`
	Lock        namespace.Ref    `cbor:"2,keyasint"`
	Why         string           `cbor:"3,keyasint"`
	Now         bool             `cbor:"4,keyasint,omitempty"`
	Successions []Succession     `cbor:"5,keyasint,omitempty"` // only with Now
}

// Evict takes a revoked lock from holders that have acknowledged the revocation.
type Evict struct {
	Lock        namespace.Ref     `cbor:"1,keyasint"`
	Generation  api.Generation    `cbor:"2,keyasint"`
	Holders     []namespace.Owner `cbor:"3,keyasint"`
	Successions []Succession      `cbor:"4,keyasint,omitempty"`
}

// Terminate begins to end another client's session: the session keeps what it
// holds for now, but its requests are refused.
type Terminate struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Target   api.SessionID    `cbor:"2,keyasint"`
	Why      string           `cbor:"3,keyasint"`
}

// SetQuota changes what a principal may use, or what may be below a directory.
type SetQuota struct {
	Mutation  session.Mutation `cbor:"1,keyasint"`
	Principal string           `cbor:"2,keyasint,omitempty"`
	Directory *namespace.Ref   `cbor:"3,keyasint,omitempty"` // its nodes and bytes; nil: the principal's
	Quota     api.Quota        `cbor:"4,keyasint"`
}

// RaiseLevel raises the cell to a feature level that all of its replicas know.
type RaiseLevel struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	To       int              `cbor:"2,keyasint"`
}

// ChangeMembers decides on a change of the cell's replicas; exactly one of Add, Remove and Keep is set. One change is under
// way at a time. A replica that is still joining may be removed, and one that is still leaving may be kept.
type ChangeMembers struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Founders []Member         `cbor:"2,keyasint,omitempty"` // Raft's configuration, for a roster that is empty: ids and Raft addresses
	Add      *Member          `cbor:"3,keyasint,omitempty"`
	Remove   string           `cbor:"4,keyasint,omitempty"` // an ID

	Keep string `cbor:"5,keyasint,omitempty" since:"3"` // the ID of one that is leaving
}

// SettleMember is the master's: Raft's configuration has a replica that was joining as a voter, or does not have any more one that
// was leaving; or a spare is to take the place of a replica that is dead.
type SettleMember struct {
	ID       string      `cbor:"1,keyasint"`
	Phase    MemberPhase `cbor:"2,keyasint"`                     // in which it was
	Replaces string      `cbor:"3,keyasint,omitempty" since:"3"` // for a spare
}

// Txn does all of its operations, if all of its conditions hold and none of the operations is
// refused; else it does nothing (docs/adr/0041-transactions-are-one-command.md).
type Txn struct {
	Mutation   session.Mutation `cbor:"1,keyasint"`
	Conditions []Condition      `cbor:"2,keyasint,omitempty"` // all are about what there is before the first operation
	Operations []Operation      `cbor:"3,keyasint,omitempty"` // each sees what those before it have done
}

// Condition is what has to hold of a node, or of a lock: all that is set of it.
type Condition struct {
	Name      api.Name        `cbor:"1,keyasint"`           // of the node; a Sequencer names its lock itself
	Content   *api.Generation `cbor:"2,keyasint,omitempty"` // of the contents; 0: there is no such node
	Instance  api.Generation  `cbor:"3,keyasint,omitempty"`
	Exists    bool            `cbor:"4,keyasint,omitempty"` // as any instance, with any contents
	Sequencer *Precondition   `cbor:"5,keyasint,omitempty"`
}

// Operation is one change of a Txn: a file is written, or created, or a node deleted.
type Operation struct {
	Name     api.Name   `cbor:"1,keyasint"`
	Delete   bool       `cbor:"2,keyasint,omitempty"`
	Create   api.Create `cbor:"3,keyasint,omitempty"` // of a file that is written: whether it may or must be created
	Contents []byte     `cbor:"4,keyasint,omitempty"`
}
