package raftfsm

import (
	"slices"

	"github.com/chubbylock/chubby/api"
)

// MaxLevel is the newest feature level of this version; see "Feature levels" in the package documentation.
//
//	1  v0.1.0
//	2  nodes keep the time of the last write of their contents (Stat.ModifiedUnix);
//	   sessions that use what they have cached only under cache leases are known as such
//	3  cells are restored from backups; the list operators says who is one;
//	   the replicas of a cell change; it remembers who held a lock before;
//	   requests for locks name an owner, and one in a deadlock is refused;
//	   transactions change several files in one command; sequencers have a proof;
//	   the names of new nodes are in Unicode's normal form C
const MaxLevel = 3

// CacheLeaseLevel is the level from which sessions may have cache leases. Below it some replica might not wait
// for them.
const CacheLeaseLevel = 2

// OperatorsLevel is the level from which the list operators counts.
const OperatorsLevel = 3

// DeadlockLevel is the level from which a request for a lock that waits for itself may be refused.
const DeadlockLevel = 3

// spellingLevel is the level from which masters require Unicode's normal form C in new names. State.Apply does
// not check: replicas may differ in their Unicode tables.
const spellingLevel = 3

// WantsNFC reports whether masters require Unicode's normal form C in the names of new nodes.
func (s *State) WantsNFC() bool { return s.Level >= spellingLevel }

// proofLevel is the level from which the cell gives sequencers a proof, and demands it for later grants.
const proofLevel = 3

// HasProofs reports whether the cell gives sequencers a proof.
func (s *State) HasProofs() bool { return s.Level >= proofLevel }

// modifiedUnix returns the time to store with contents written at wall: 0 below level 2.
func (s *State) modifiedUnix(wall int64) int64 {
	//mutant: if s.Level < 1 {
	if s.Level < 2 {
		return 0
	}
	return wall
}

// Level returns the feature level that the state needs before its log may have the command: the highest at
// which a set field was added. TestGates compares it with the tags.
func (c Command) Level() int {
	switch {
	case c.Restore != nil, c.ChangeMembers != nil, c.SettleMember != nil, c.Txn != nil, c.NewEpoch != nil && len(c.NewEpoch.Operators) > 0:
		return 3
	case c.EndSessions != nil && slices.ContainsFunc(c.EndSessions.Ends, func(e End) bool { return e.FailOver }):
		return 3
	case c.CreateSession != nil && c.CreateSession.CacheLease:
		return 2
	case c.Cancel != nil && c.Cancel.Refusal != nil:
		r := c.Cancel.Refusal
		if len(r.Cycle) > 0 || r.Step != 0 {
			return 3
		}
		return r.Cause.Level()
	}
	for _, next := range c.Successions() {
		if slices.ContainsFunc(next.Claims, func(one Claim) bool { return one.DeclaredOwner != "" }) {
			return 3
		}
	}
	return 1
}

// checkCommand returns an error for a command that replicas of that level could not read.
func checkCommand(c Command, level int) error {
	if level >= MaxLevel { // most cells, most of the time
		return nil
	}
	if needed := c.Level(); needed > level {
		return NeedsLevel(needed, level)
	}
	return nil
}

// NeedsLevel returns the error for an action that a cell of that level cannot do yet.
func NeedsLevel(needed, level int) error {
	return api.Errorf(api.Unavailable, "this needs feature level %d, and the cell is at level %d: finish the upgrade of the cell (chubbyctl cell upgrade status)", needed, level)
}
