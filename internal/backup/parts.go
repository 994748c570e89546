package backup

import (
	"iter"
	"slices"

	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// partSize bounds the encoded nodes of a part, unless it has a single one, and the encoded quotas. What encloses them
// comes on top.
const partSize = 128 << 10

// Parts returns what a cell is given to restore a state: its nodes, parents before their children, and the quotas of
// principals. The number of quotas is the second result.
func Parts(state raftfsm.State) (parts iter.Seq2[[]byte, error], quotas int) {
	var all []raftfsm.PrincipalQuota
	for principal, q := range state.Quotas() {
		all = append(all, raftfsm.PrincipalQuota{Principal: principal, Quota: q})
	}
	nodes := func(yield func(*namespace.Node) bool) {
		for node := range state.Tree.All() {
			bare := *node
			bare.Mode, bare.Holders, bare.Openers, bare.Revoked = 0, nil, nil, nil
			if !yield(&bare) {
				return
			}
		}
	}
	return func(yield func([]byte, error) bool) {
		for some := range pieces(slices.Values(all)) {
			if part := (raftfsm.RestoreAdd{Quotas: some}); !yield(part.Encode()) {
				return
			}
		}
		for some := range pieces(iter.Seq[*namespace.Node](nodes)) {
			if part := (raftfsm.RestoreAdd{Nodes: some}); !yield(part.Encode()) {
				return
			}
		}
	}, len(all)
}

// pieces cuts a list into pieces that take at most partSize bytes as they are encoded, or that have one element.
func pieces[T any](list iter.Seq[T]) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		var piece []T
		bytes := 0
		for one := range list {
			size := raftfsm.Size(one)
			if len(piece) > 0 && bytes+size > partSize {
				if !yield(piece) {
					return
				}
				piece, bytes = nil, 0
			}
			piece, bytes = append(piece, one), bytes+size
		}
		if len(piece) > 0 {
			yield(piece)
		}
	}
}
