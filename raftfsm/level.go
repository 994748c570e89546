package raftfsm

// MaxLevel is the newest feature level that this version of Chubby knows; see "Feature
// levels" in the documentation of the package.
//
//	1  v0.1.0
//	2  nodes keep the time of the last write of their contents (Stat.ModifiedUnix);
//	   sessions that use what they have cached only under cache leases are known as such
//	3  cells are restored from backups; the list operators says who is one;
//	   the replicas of a cell change; it remembers who held a lock before;
//	   requests for locks say for whom, and one of those that wait for each other is refused;
//	   transactions change several files in one command; sequencers have a proof;
//	   the names of new nodes are in Unicode's normal form C
const MaxLevel = 3

// CacheLeaseLevel is the level from which on sessions are known as such that have cache
// leases. Below it a replica of the cell may be one that would not wait for those.
const CacheLeaseLevel = 2

// OperatorsLevel is the level from which on the list operators says who is one.
const OperatorsLevel = 3

// DeadlockLevel is the level from which on a request for a lock may be refused because it waits for itself.
const DeadlockLevel = 3

// spellingLevel is the level from which on masters create no node whose name is not in Unicode's normal form C. State.Apply
// creates what it is asked to: replicas need not have the same tables of Unicode.
const spellingLevel = 3

// WantsNFC reports whether masters create no node whose name is not in Unicode's normal form C.
func (s *State) WantsNFC() bool { return s.Level >= spellingLevel }

// proofLevel is the level from which on the cell gives sequencers a proof, and demands it of those of later grants.
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
