package peer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Check is what a replica says of its whole state at a check point, which is an entry of the log. It is cut to what is
// free in the answer to a probe: bits of a hash that is equal by chance miss a difference, and stop nobody.
type Check struct {
	Index uint64 // of the check point, below 2^48; 0 if there is no check
	Kind  uint32 // of that entry's term, and of the software: only checks of one kind can be compared
	Sum   uint64 // 48 bits of a hash of the state
}

// NewCheck returns the check of a state with that hash. software names the version and the feature levels of the replica: others
// may write the same state in other bytes.
func NewCheck(index, term uint64, software string, hash []byte) Check {
	//mutant: kind := sha256.Sum256(fmt.Appendf(nil, "%d", term)) //by TestOtherVersionsStopNobody of ./cell
	kind := sha256.Sum256(fmt.Appendf(nil, "%d %s", term, software))
	sum := sha256.Sum256(hash)
	return Check{Index: index & (1<<48 - 1), Kind: binary.BigEndian.Uint32(kind[:]), Sum: binary.BigEndian.Uint64(sum[:]) >> 16}
}

// put writes a check into 16 bytes.
func (c Check) put(to []byte) {
	binary.BigEndian.PutUint64(to, c.Index<<16|c.Sum>>32)
	binary.BigEndian.PutUint64(to[8:], c.Sum<<32|uint64(c.Kind))
}

// checkIn reads what put wrote.
func checkIn(from []byte) Check {
	high, low := binary.BigEndian.Uint64(from), binary.BigEndian.Uint64(from[8:])
	return Check{Index: high >> 16, Kind: uint32(low), Sum: high&(1<<16-1)<<32 | low>>32}
}

// Differs reports whether two replicas have other states at the same entry. Checks of different entries or kinds say nothing.
func (c Check) Differs(other Check) bool {
	return c.Index > 0 && c.Index == other.Index && c.Kind == other.Kind && c.Sum != other.Sum
}

// Contradicted returns which voters contradict a replica, if they are a majority of all voters: they have the same
// state at the check point of own, and that is another one. At most one state has a majority at a check point, so a minority
// of the replicas is contradicted there at most. A single replica that lies contradicts nobody in a cell of three or more, unless another
// one agrees with it.
func Contradicted(own Check, others map[string]Check, voters []string) (by []string, sum uint64) {
	having := map[uint64][]string{}
	for _, id := range voters {
		if theirs, heard := others[id]; heard && own.Differs(theirs) {
			having[theirs.Sum] = append(having[theirs.Sum], id)
		}
	}
	for sum, ids := range having {
		//mutant: if len(ids) > 0 {
		if len(ids) > len(voters)/2 {
			slices.Sort(ids)
			return ids, sum
		}
	}
	return nil, 0
}
