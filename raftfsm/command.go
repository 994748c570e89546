package raftfsm

import (
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// Entry is one Raft log entry: a batch of commands from the master of one epoch.
type Entry struct {
	Epoch    api.Epoch `cbor:"1,keyasint"`
	Wall     int64     `cbor:"2,keyasint,omitempty"` // the proposer's seconds since 1970; for display, never compared
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

// By returns the session whose request the command is, 0 if the command is the master's own.
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

// Successions returns the locks that a command grants or hands on, with their claims.
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

// NewEpoch is a new master's first command (Chubby §2.9, step 1). The first in a cell bootstraps it with its id
// and secret; later ones' are ignored.
type NewEpoch struct {
	Cell   string     `cbor:"1,keyasint"`
	CellID api.CellID `cbor:"2,keyasint"`
	Secret []byte     `cbor:"3,keyasint"`

	Level int `cbor:"4,keyasint,omitempty"` // the level of a new cell

	RestoreAccess bool `cbor:"5,keyasint,omitempty"` // restore everybody's access to the ACLs, for an operator of the master's machine

	Operators []string `cbor:"6,keyasint,omitempty" since:"3"` // of a new cell: principals, or "*" for everybody
}

// CreateSession adds a session, or finds the session with that nonce.
type CreateSession struct {
	Nonce     []byte        `cbor:"1,keyasint"`
	Principal string        `cbor:"2,keyasint,omitempty"`
	Host      string        `cbor:"3,keyasint,omitempty"`
	PID       int           `cbor:"4,keyasint,omitempty"`
	Lease     time.Duration `cbor:"5,keyasint"`
	MayCache  bool          `cbor:"6,keyasint,omitempty"`

	CacheLease bool `cbor:"7,keyasint,omitempty" since:"2"` // it uses cached data only under cache leases
}

// RaiseLease raises a session's longest lease. It commits before the first such grant, so that the next master
// knows the longest lease granted.
type RaiseLease struct {
	Session api.SessionID `cbor:"1,keyasint"`
	Lease   time.Duration `cbor:"2,keyasint"`
}

// EndSessions ends sessions. The same step releases their locks and closes their handles on ephemeral nodes.
type EndSessions struct {
	Ends        []End        `cbor:"1,keyasint"`
	Successions []Succession `cbor:"2,keyasint,omitempty"`
}

// End is the end of one session.
type End struct {
	Session      api.SessionID `cbor:"1,keyasint"`
	Reason       api.EndReason `cbor:"2,keyasint"`
	Acknowledged bool          `cbor:"3,keyasint,omitempty"`           // its client has acknowledged the end, and uses nothing of it
	FailOver     bool          `cbor:"4,keyasint,omitempty" since:"3"` // expired, and silent since the epoch began
}

// Failed reports whether the session leaves lock-delays behind: not if its client knew of the end.
func (e End) Failed() bool { return e.Reason != api.ByClose && !e.Acknowledged }

// why returns how the session's holdings have ended.
func (e End) why() api.EndReason {
	if e.FailOver {
		return api.ByFailOver
	}
	return e.Reason
}

// Succession lists the claims that get a lock next, in order. A command that frees locks has one for each lock
// with waiters; for another lock it has no effect.
type Succession struct {
	Lock   namespace.Ref `cbor:"1,keyasint"`
	Claims []Claim       `cbor:"2,keyasint"`
}

// Open opens a node through the log: it may have to be created, or it is ephemeral and has counted openers. The
// handle's id is the request's number.
type Open struct {
	Mutation      session.Mutation `cbor:"1,keyasint"`
	Name          api.Name         `cbor:"2,keyasint"`
	Create        api.Create       `cbor:"3,keyasint,omitempty"`
	Kind          api.Kind         `cbor:"4,keyasint,omitempty"` // 0: either, if the node exists
	Ephemeral     bool             `cbor:"5,keyasint,omitempty"`
	Contents      []byte           `cbor:"6,keyasint,omitempty"`
	ACL           api.ACL          `cbor:"7,keyasint"`
	Rights        namespace.Rights `cbor:"8,keyasint,omitempty"` // the rights of the handle
	Preconditions []Precondition   `cbor:"9,keyasint,omitempty"`
}

// Close releases a handle's hold of a node.
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

// SetACL replaces a node's ACL names by the ones set here.
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

// EndDelay ends a lock-delay that the master has timed, and hands the lock on.
type EndDelay struct {
	Name        api.Name     `cbor:"1,keyasint"`
	ID          uint64       `cbor:"2,keyasint"`
	Successions []Succession `cbor:"3,keyasint,omitempty"`
}

// Cancel withdraws a pending request; if it is done, the result is its answer (Chubby §4.4). The mutation is
// the request's; its hash does not matter. With a refusal, the master cancels: a retry with the same hash gets
// this refusal.
type Cancel struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Refusal  *refusal.Refusal `cbor:"2,keyasint,omitempty"`
}

// Remove removes dying ephemeral nodes.
type Remove struct {
	Nodes []namespace.Ref `cbor:"1,keyasint"`
}

// Revoke begins to take a lock from its holders, for an operator. The lock is free once they have acknowledged
// (Evict) or their sessions have ended; with Now, at once.
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

// Terminate begins to end another client's session. The session keeps its holdings for now, but its requests
// are rejected.
type Terminate struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Target   api.SessionID    `cbor:"2,keyasint"`
	Why      string           `cbor:"3,keyasint"`
}

// SetQuota sets the quota of a principal or a directory.
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

// ChangeMembers decides a change of the cell's replicas, one at a time; exactly one of Add, Remove and Keep is
// set. A joining replica may be removed, and a leaving one kept.
type ChangeMembers struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Founders []Member         `cbor:"2,keyasint,omitempty"` // Raft's configuration, for an empty roster: ids and Raft addresses
	Add      *Member          `cbor:"3,keyasint,omitempty"`
	Remove   string           `cbor:"4,keyasint,omitempty"` // an ID

	Keep string `cbor:"5,keyasint,omitempty" since:"3"` // the ID of a leaving replica
}

// SettleMember is the master's: a joining replica now votes, or a leaving one has left Raft's configuration; or
// a spare replaces a dead replica.
type SettleMember struct {
	ID       string      `cbor:"1,keyasint"`
	Phase    MemberPhase `cbor:"2,keyasint"`                     // its phase before
	Replaces string      `cbor:"3,keyasint,omitempty" since:"3"` // for a spare
}

// Txn does all of its operations, if all conditions hold and no operation is refused; otherwise nothing
// (docs/adr/0041-transactions-are-one-command.md).
type Txn struct {
	Mutation   session.Mutation `cbor:"1,keyasint"`
	Conditions []Condition      `cbor:"2,keyasint,omitempty"` // on the state before the first operation
	Operations []Operation      `cbor:"3,keyasint,omitempty"` // each sees the effects of earlier ones
}

// Condition is a condition on a node or a lock: everything that is set has to hold.
type Condition struct {
	Name      api.Name        `cbor:"1,keyasint"`           // of the node; a Sequencer names its lock
	Content   *api.Generation `cbor:"2,keyasint,omitempty"` // of the contents; 0: there is no such node
	Instance  api.Generation  `cbor:"3,keyasint,omitempty"`
	Exists    bool            `cbor:"4,keyasint,omitempty"` // as any instance, with any contents
	Sequencer *Precondition   `cbor:"5,keyasint,omitempty"`
}

// Operation is one change of a Txn: it writes or creates a file, or deletes a node.
type Operation struct {
	Name     api.Name   `cbor:"1,keyasint"`
	Delete   bool       `cbor:"2,keyasint,omitempty"`
	Create   api.Create `cbor:"3,keyasint,omitempty"` // whether writing may or must create the file
	Contents []byte     `cbor:"4,keyasint,omitempty"`
}
