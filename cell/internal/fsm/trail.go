package fsm

import "sync/atomic"

// trailLength is after how many of the latest entries the running hash is kept:
// replicas are rarely further apart than this.
const trailLength = 4096

// trail is the running hash after each of the latest entries, by which replicas
// find out that they have applied different ones. One goroutine writes it, any may
// read it.
type trail struct{ steps [trailLength]step }

// step is the running hash after one entry. While it changes its index is 0.
type step struct{ index, sum atomic.Uint64 }

func (t *trail) add(index, sum uint64) {
	s := &t.steps[index%trailLength]
	s.index.Store(0)
	s.sum.Store(sum)
	s.index.Store(index)
}

func (t *trail) at(index uint64) (sum uint64, ok bool) {
	s := &t.steps[index%trailLength]
	before := s.index.Load()
	sum = s.sum.Load()
	return sum, index != 0 && before == index && s.index.Load() == index
}

// clear forgets everything: the state was replaced.
func (t *trail) clear() {
	for i := range t.steps {
		t.steps[i].index.Store(0)
	}
}

// HistoryAt returns the running hash of all entries up to that index, as
// raftfsm.State.History was after it. ok is false if that entry is none of the latest ones
// applied here. Replicas with other hashes at the same index have applied other
// entries, or made something else of them. It is for any goroutine.
func (f *FSM) HistoryAt(index uint64) (sum uint64, ok bool) { return f.trail.at(index) }
