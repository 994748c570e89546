package namespace

import (
	"github.com/chubbylock/chubby/api"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// edit is a transaction on a tree's nodes, indexes and counts; nothing else
// changes those. Several changes in one edit copy what they share once. The
// tree does not change before commit.
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

// add puts a new node into the tree. The caller updates the parent's count.
func (e *edit) add(n *Node) {
	e.nodes.Insert(key(n.Name), n)
	for _, session := range n.owners() {
		e.owned.Insert(ownedKey(session, n.Name), struct{}{})
	}
	e.count(n, 1)
	e.charge(n, 1, int64(len(n.Contents)))
}

// replace puts a node in the place of its previous version. Only the given
// session may begin or cease to own the node by that.
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

// disown removes a node from the index entries of its former holders' sessions, unless they still
// own it otherwise. Use it after a replace that was given no session.
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

// remove takes a node out of the tree. The caller updates the parent's count.
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

// replace is an edit that replaces one node.
func (t *Tree) replace(old, n *Node, session api.SessionID) {
	e := t.edit()
	e.replace(old, n, session)
	e.commit()
}

// remove is an edit that removes one node and updates its parent's count.
func (t *Tree) remove(n *Node) {
	e := t.edit()
	if parent, ok := t.Get(n.Name.Parent()); ok && parent != n {
		e.replace(parent, parent.withChildren(-1), 0)
	}
	e.remove(n) // after its parent: charge must not count the node against the parent's old version
	e.commit()
}
