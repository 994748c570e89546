package namespace

import (
	"github.com/chubbylock/chubby/api"
)

// Restore puts a node into a tree that is being read from a snapshot, parents
// first. The tree keeps the node. The root replaces the root that New made. A
// node with an invalid name, without a parent, or restored twice is Corrupt;
// Check finds other problems.
func (t *Tree) Restore(n *Node) error {
	if n == nil {
		return api.Errorf(api.Corrupt, "there is no node to restore")
	}
	if r := refuseName(n.Name); r != nil {
		return api.Errorf(api.Corrupt, "a node cannot be restored: %s", r.Message())
	}
	old, there := t.Get(n.Name)
	_, placed := t.Get(n.Name.Parent())
	switch {
	//mutants: same (one node is the root)
	case there && n.Name == "" && t.counts.Nodes == 1:
		t.takeOut(old)
	case there:
		return api.Errorf(api.Corrupt, "the node %q is to be restored twice", n.Name)
	case !placed:
		return api.Errorf(api.Corrupt, "the node %q is to be restored before the directory it is in", n.Name)
	}
	if n.Quota != nil { // add counts what is below it, node by node
		counted := *n
		counted.Quota = &Quota{Limit: n.Quota.Limit}
		n = &counted
	}
	if n.isACLFile() {
		n.list = parseList(n.Contents)
	}
	t.add(n)
	return nil
}

// RestoreDelay puts a delay into a tree that is being read from a snapshot.
func (t *Tree) RestoreDelay(name api.Name, d Delay) {
	t.delays.Set(name, d)
}
