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
	usage  *iradix.Txn[Usage]
	counts Counts
}

func (t *Tree) edit() edit {
	return edit{tree: t, nodes: t.nodes.Txn(), owned: t.owned.Txn(), usage: t.usage.Txn(), counts: t.counts}
}

func (e *edit) commit() {
	e.tree.nodes, e.tree.owned, e.tree.usage, e.tree.counts = e.nodes.Commit(), e.owned.Commit(), e.usage.Commit(), e.counts
}

// add puts a new node into the tree. Its parent's count is the caller's.
func (e *edit) add(n *Node) {
	e.nodes.Insert(key(n.Name), n)
	for _, session := range n.owners() {
		e.owned.Insert(ownedKey(session, n.Name), struct{}{})
	}
	e.count(n, 1)
	e.charge(n, 1, int64(len(n.Contents)))
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
	e.charge(n, 0, int64(len(n.Contents)-len(old.Contents)))
}

// disown takes a node out of what those sessions own who were among its holders and own
// nothing of it any more. It is for a replace that names none of them.
func (e *edit) disown(n *Node, were []Holder) {
	gone := make(map[api.SessionID]bool)
	for _, h := range were {
		gone[h.Session] = true
	}
	for _, session := range n.owners() {
		delete(gone, session)
	}
	for _, h := range were {
		if gone[h.Session] {
			e.owned.Delete(ownedKey(h.Session, n.Name))
		}
	}
}

// remove takes a node out of the tree. Its parent's count is the caller's.
func (e *edit) remove(n *Node) {
	e.nodes.Delete(key(n.Name))
	for _, session := range n.owners() {
		e.owned.Delete(ownedKey(session, n.Name))
	}
	e.count(n, -1)
	e.charge(n, -1, -int64(len(n.Contents)))
}

func (e *edit) count(n *Node, sign int) {
	e.counts.Nodes += sign
	e.counts.Bytes += int64(sign * len(n.Contents))
	if n.held() {
		e.counts.Locks += sign
	}
	if n.Quota != nil {
		e.counts.Limited += sign
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
	if parent, ok := t.Get(n.Name.Parent()); ok && parent != n {
		e.replace(parent, parent.withChildren(-1), 0)
	}
	e.remove(n) // after its parent, which it no longer counts against
	e.commit()
}
