package chubby_test

import (
	"go/ast"
	"slices"
	"testing"
)

// lawHandOver: Raft's own leadership transfer makes it refuse every change until
// two calls have returned that a dead target can hold up, in later terms too.
// cell.Replica.Transfer asks the target itself.
func lawHandOver(t *testing.T, files []source) {
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if ok && slices.Contains([]string{"LeadershipTransfer", "LeadershipTransferToServer"}, call.Sel.Name) {
				t.Errorf("%s: %s can leave Raft refusing every change: hand over with cell.Replica.Transfer", f.at(n), call.Sel.Name)
			}
			return true
		})
	}
}
