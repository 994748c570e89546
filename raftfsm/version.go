package raftfsm

import (
	"github.com/chubbylock/chubby/api"
)

// Version is that of what commands do. Every replica must compute the same state
// from the same log, whenever it applies which part of it, so what a command does
// may not depend on which binary applies it: it depends on the version that the
// state is in, which a NewEpoch raises. A master of this version proposes this
// one; a replica that does not know the version stops.
//
//	0  the generations of contents and ACL names count from 1 in each node
//	1  they are drawn from the cell's counter, as instances and lock generations
//	   are, so that none ever stands for two contents of one name
//	2  what is directly in the directory of access control lists is a permanent file,
//	   and that directory is permanent; the running hash of what is applied begins anew
const Version = 2

// upgrade goes on to a version. The generations that were counted in nodes may be
// above the cell's counter, which from now on has to be above them. The running hash
// begins anew: not every version put it into its snapshots, so that replicas which
// loaded theirs at different entries have different ones of the same state.
func (s *State) upgrade(to int) {
	if to <= s.Version {
		return
	}
	s.Version, s.History = to, 0
	for n := range s.Tree.All() {
		s.Counter = max(s.Counter, uint64(n.Content), uint64(n.ACLs))
	}
}

// drawSince returns the generation of contents, or of ACL names, that are written
// over those of generation was.
func (s *State) drawSince(was api.Generation) api.Generation {
	if s.Version == 0 {
		return was + 1
	}
	return s.drawGeneration()
}

// firstGeneration returns the generation of what a node is created with; 0 is
// that of the instance.
func (s *State) firstGeneration() api.Generation {
	if s.Version == 0 {
		return 1
	}
	return 0
}
