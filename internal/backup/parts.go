package backup

import (
	"iter"
	"slices"

	"github.com/chubbylock/chubby/raftfsm"
)

// partSize is how many bytes a part is to have about. One with a single node may be longer.
const partSize = 128 << 10

// nodeSize is what a node takes besides its name and contents, about.
const nodeSize = 128

// Parts returns what a cell is given to restore a state: its nodes, parents before their children, and the quotas of
// principals. The number of quotas is the second result.
func Parts(state raftfsm.State) (parts iter.Seq2[[]byte, error], quotas int) {
	var all []raftfsm.PrincipalQuota
	for principal, q := range state.Quotas() {
		all = append(all, raftfsm.PrincipalQuota{Principal: principal, Quota: q})
	}
	return func(yield func([]byte, error) bool) {
		for some := range slices.Chunk(all, 1000) {
			if part := (raftfsm.RestoreAdd{Quotas: some}); !yield(part.Encode()) {
				return
			}
		}
		var part raftfsm.RestoreAdd
		size := 0
		for node := range state.Tree.All() {
			one := nodeSize + len(node.Name) + len(node.Contents)
			if len(part.Nodes) > 0 && size+one > partSize {
				if !yield(part.Encode()) {
					return
				}
				part.Nodes, size = nil, 0
			}
			bare := *node
			bare.Mode, bare.Holders, bare.Openers, bare.Revoked = 0, nil, nil, nil
			part.Nodes, size = append(part.Nodes, &bare), size+one
		}
		yield(part.Encode())
	}, len(all)
}
