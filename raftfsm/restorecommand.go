package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

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
