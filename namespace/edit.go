package namespace

import (
	"github.com/chubbylock/chubby/api"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// edit is a change of a tree's nodes, and with them of its index and counts,
// which nothing else changes. It copies once what its changes have in common.
// Until commit, the tree is what it was.
type edit struct {
	tree   *Tree
	nodes  *iradix.Txn[*Node]
	owned  *iradix.Txn[struct{}]
	counts Counts
}

func (t *Tree) edit() edit {
	return edit{tree: t, nodes: t.nodes.Txn(), owned: t.owned.Txn(), counts: t.counts}
}

func (e *edit) commit() {
	e.tree.nodes, e.tree.owned, e.tree.counts = e.nodes.Commit(), e.owned.Commit(), e.counts
}

// add puts a new node into the tree. Its parent's count is the caller's.
func (e *edit) add(n *Node) {
	e.nodes.Insert(key(n.Name), n)
	for _, session := range n.owners() {
		e.owned.Insert(ownedKey(session, n.Name), struct{}{})
	}
	e.count(n, 1)
	e.counts.Nodes++
}

// replace puts a node in the place of its previous version. Of all sessions
// only the one given may own it now and not before, or the reverse.
func (e *edit) replace(old, n *Node, session api.SessionID) {
	e.nodes.Insert(key(n.Name), n)
	switch was, is := old.ownedBy(session), n.ownedBy(session); {
	case is && !was:
		e.owned.Insert(ownedKey(session, n.Name), struct{}{})
	case was && !is:
		e.owned.Delete(ownedKey(session, n.Name))
	}
	e.count(old, -1)
	e.count(n, 1)
}

// remove takes a node out of the tree. Its parent's count is the caller's.
func (e *edit) remove(n *Node) {
	e.nodes.Delete(key(n.Name))
	for _, session := range n.owners() {
		e.owned.Delete(ownedKey(session, n.Name))
	}
	e.count(n, -1)
	e.counts.Nodes--
}

func (e *edit) count(n *Node, sign int) {
	e.counts.Bytes += int64(sign * len(n.Contents))
	if n.held() {
		e.counts.Locks += sign
	}
}

// replace is an edit of one node.
func (t *Tree) replace(old, n *Node, session api.SessionID) {
	e := t.edit()
	e.replace(old, n, session)
	e.commit()
}

// remove is an edit that takes a node out, and out of its parent's count.
func (t *Tree) remove(n *Node) {
	e := t.edit()
	e.remove(n)
	if parent, ok := t.Get(n.Name.Parent()); ok && parent != n {
		e.replace(parent, parent.withChildren(-1), 0)
	}
	e.commit()
}
