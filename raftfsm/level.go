package raftfsm

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
