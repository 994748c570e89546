package peer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Check identifies a replica's whole state at a check point, an entry of the log. It fits into a probe's
// answer: if hashes agree by chance, a difference goes unnoticed, and nobody stops.
type Check struct {
	Index uint64 // of the check point, below 2^48; 0 without a check
	Kind  uint32 // hash of the entry's term and the software; only checks of one kind compare
	Sum   uint64 // 48 bits of a hash of the state
}

// NewCheck returns the check of a state. software names version and feature levels: others may encode a state
// differently.
func NewCheck(index, term uint64, software string, hash []byte) Check {
	//mutant: kind := sha256.Sum256(fmt.Appendf(nil, "%d", term)) //by TestOtherVersionsStopNobody of ./cell
	kind := sha256.Sum256(fmt.Appendf(nil, "%d %s", term, software))
	sum := sha256.Sum256(hash)
	return Check{Index: index & (1<<48 - 1), Kind: binary.BigEndian.Uint32(kind[:]), Sum: binary.BigEndian.Uint64(sum[:]) >> 16}
}

// put encodes a check in 16 bytes.
func (c Check) put(to []byte) {
	binary.BigEndian.PutUint64(to, c.Index<<16|c.Sum>>32)
	binary.BigEndian.PutUint64(to[8:], c.Sum<<32|uint64(c.Kind))
}

func checkIn(from []byte) Check {
	high, low := binary.BigEndian.Uint64(from), binary.BigEndian.Uint64(from[8:])
	return Check{Index: high >> 16, Kind: uint32(low), Sum: high&(1<<16-1)<<32 | low>>32}
}

// Differs reports whether two states at the same entry differ. Checks of different entries or kinds say nothing.
func (c Check) Differs(other Check) bool {
	return c.Index > 0 && c.Index == other.Index && c.Kind == other.Kind && c.Sum != other.Sum
}

// Contradicted returns the voters that contradict a replica, if a majority agrees on another state at own's
// check point. Only one state has a majority, so only a minority is contradicted. In a cell of three or more,
// one faulty replica contradicts nobody alone.
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
