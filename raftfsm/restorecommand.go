package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// Restore is one step of restoring the cell from a backup, in the session of an operator; exactly one of
// its steps is set. The steps are Begin, Add for each part, Seal and Finish
// (docs/adr/0029-a-cell-is-restored-through-its-log.md). GiveUp ends it before Finish.
type Restore struct {
	Mutation session.Mutation `cbor:"1,keyasint"`
	Begin    *RestoreBegin    `cbor:"2,keyasint,omitempty"`
	Add      *RestoreAdd      `cbor:"3,keyasint,omitempty"`
	Seal     *RestoreSeal     `cbor:"4,keyasint,omitempty"`
	Finish   bool             `cbor:"5,keyasint,omitempty"` // the backup takes the place of what the cell has

	// GiveUp ends a restore: what is staged is forgotten, and sessions can begin. Its author asks for it in the session that restores. As
	// no other session may be possible, it is also the master's command, without a mutation: for an operator, or because no step has come
	// for long.
	GiveUp   bool          `cbor:"6,keyasint,omitempty" since:"3"`
	Of       api.SessionID `cbor:"7,keyasint,omitempty" since:"3"` // whose restore the master gives up
	Operator string        `cbor:"8,keyasint,omitempty" since:"3"` // for whom; empty if time has passed
}

// RestoreBegin says what is restored. It takes the place of an earlier one of the same session.
type RestoreBegin struct {
	Cell    string     `cbor:"1,keyasint"` // whose backup it is
	CellID  api.CellID `cbor:"2,keyasint"`
	Level   int        `cbor:"3,keyasint"` // its feature level
	Counter uint64     `cbor:"4,keyasint"` // its fencing counter, or a higher number if more is known to have been issued
	Nodes   int        `cbor:"5,keyasint"` // how many nodes are going to be added, the root included
	Quotas  int        `cbor:"6,keyasint,omitempty"`

	Source BackupSource `cbor:"7,keyasint,omitempty" since:"3"`
}

// BackupSource says how a backup was made. It is for people; nothing depends on it.
type BackupSource struct {
	Index     uint64 `cbor:"1,keyasint,omitempty"` // of the last entry that is in it
	TakenUnix int64  `cbor:"2,keyasint,omitempty"` // by the clock of who made it
	Recovered string `cbor:"3,keyasint,omitempty"` // the ID of the replica out of whose directory it was made, of a cell that had lost its majority; empty if a master gave it
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

// Encode writes a part, for the way to the cell.
func (a RestoreAdd) Encode() ([]byte, error) { return entryCodec.enc.Marshal(a) }

// DecodeRestoreAdd reads what Encode wrote. Whether the nodes can be is for Apply to decide. Since a part comes from a client, it has no
// more nodes than its length allows.
func DecodeRestoreAdd(data []byte) (*RestoreAdd, error) {
	a := new(RestoreAdd)
	if err := newDecMode(max(maxAddedQuotas, len(data)/leastNode)).Unmarshal(data, a); err != nil {
		return nil, &api.Error{Code: api.InvalidArgument, Message: "this is no part of a backup", Err: err}
	}
	return a, nil
}

// RestoreSeal says that the backup is complete. All other sessions are ended then, and no more begin.
type RestoreSeal struct {
	Why string `cbor:"1,keyasint,omitempty"` // what the clients of the sessions are told
}

// PrincipalQuota is the quota of a principal.
type PrincipalQuota struct {
	Principal string    `cbor:"1,keyasint"`
	Quota     api.Quota `cbor:"2,keyasint"`
}

// Of the lists of a part: how many bytes a node has at least as it is encoded, and how many quotas a part of any length may have.
const (
	leastNode      = 16
	maxAddedQuotas = 1000
)
