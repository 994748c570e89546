package namespace

import "github.com/chubbylock/chubby/api"

// Edit begins a time in which changes are made in place, which is cheaper: meanwhile the tree
// must not be copied. Settle ends it. Snapshot takes a snapshot at any time.
func (t *Tree) Edit() {
	t.nodes.Edit()
	t.owned.Edit()
	t.delays.Edit()
	t.usage.Edit()
}

// Settle ends what Edit began: a copy of the tree is a snapshot again.
func (t *Tree) Settle() {
	t.nodes.Settle()
	t.owned.Settle()
	t.delays.Settle()
	t.usage.Settle()
}

// Snapshot returns the tree as it is now.
func (t *Tree) Snapshot() Tree {
	//mutant: return Tree{nodes: t.nodes.Snapshot(), owned: t.owned.Snapshot(), delays: t.delays.Snapshot(), usage: t.usage, counts: t.counts} //by TestStateAgainstModel of ./raftfsm
	return Tree{nodes: t.nodes.Snapshot(), owned: t.owned.Snapshot(), delays: t.delays.Snapshot(), usage: t.usage.Snapshot(), counts: t.counts}
}

// add puts a new node into the tree. The caller updates the parent's count.
func (t *Tree) add(n *Node) {
	t.nodes.Set(keyOf(n.Name), n)
	for _, session := range n.owners() {
		t.owned.Set(ownedKey{session, n.Name}, struct{}{})
	}
	t.count(n, 1)
	t.charge(n, 1, int64(len(n.Contents)))
}

// replace puts a node in the place of its previous version. Only the given
// session may begin or cease to own the node by that.
func (t *Tree) replace(old, n *Node, session api.SessionID) {
	t.nodes.Set(keyOf(n.Name), n)
	switch was, is := old.ownedBy(session), n.ownedBy(session); {
	//mutants: same (it is there already)
	case is && !was:
		t.owned.Set(ownedKey{session, n.Name}, struct{}{})
	//mutants: same (it is gone already)
	case was && !is:
		t.owned.Delete(ownedKey{session, n.Name})
	}
	t.count(old, -1)
	t.count(n, 1)
	t.charge(n, 0, int64(len(n.Contents)-len(old.Contents)))
}

// disown removes a node from the index entries of its former holders' sessions, unless they still
// own it otherwise. Use it after a replace that was given no session.
func (t *Tree) disown(n *Node, were []Holder) {
	gone := make(map[api.SessionID]bool)
	for _, h := range were {
		gone[h.Session] = true
	}
	for _, session := range n.owners() {
		delete(gone, session)
	}
	for _, h := range were {
		if gone[h.Session] {
			t.owned.Delete(ownedKey{h.Session, n.Name})
		}
	}
}

// remove takes a node out of the tree and updates its parent's count.
func (t *Tree) remove(n *Node) {
	//mutants: same (the root is never removed)
	if parent, ok := t.Get(n.Name.Parent()); ok && parent != n {
		t.replace(parent, parent.withChildren(-1), 0)
	}
	t.takeOut(n) // after its parent: charge must not count the node against the parent's old version
}

// takeOut takes a node out of the tree. The caller updates the parent's count.
func (t *Tree) takeOut(n *Node) {
	t.nodes.Delete(keyOf(n.Name))
	for _, session := range n.owners() {
		t.owned.Delete(ownedKey{session, n.Name})
	}
	t.count(n, -1)
	t.charge(n, -1, -int64(len(n.Contents)))
}

func (t *Tree) count(n *Node, sign int) {
	t.counts.Nodes += sign
	t.counts.Bytes += int64(sign * len(n.Contents))
	t.counts.Names += int64(sign * n.nameBytes())
	if n.isACLFile() {
		t.counts.Lists += int64(sign * len(n.Contents))
	}
	if n.held() {
		t.counts.Locks += sign
	}
	if n.Quota != nil {
		t.counts.Limited += sign
	}
}
