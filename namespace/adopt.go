package namespace

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Adopt puts a node of a backup into a tree, parents first; the root takes the place of the one that New
// made. Nobody holds its lock or has it open: an ephemeral node is dying. What the tree counts, children and use of quotas, it
// counts anew. newest is the highest generation that the node may have. A node that could not be is refused, and the
// tree has not changed.
func (t *Tree) Adopt(n *Node, newest api.Generation) error {
	if n == nil {
		return &refusal.Refusal{Cause: refusal.RestoreNode}
	}
	next := *n
	//mutant: next.Children = 0 //by TestMillion of ./raftfsm
	next.Mode, next.Holders, next.Openers, next.Revoked, next.Children = 0, nil, nil, nil, 0
	if n.Quota != nil {
		next.Quota = &Quota{Limit: n.Quota.Limit}
	}
	adopted := next.withContents(n.Contents)
	if adopted.Checksum != n.Checksum || !t.adoptable(adopted, newest) {
		return &refusal.Refusal{Cause: refusal.RestoreNode, Name: n.Name[:min(len(n.Name), api.MaxPath)]}
	}
	if n.Name == "" {
		root, _ := t.Get("")
		t.takeOut(root)
	} else {
		parent, _ := t.Get(n.Name.Parent())
		t.replace(parent, parent.withChildren(1), 0)
	}
	t.add(adopted) // after its parent, which it counts against
	return nil
}

// Renew gives every node this generation, which none of them has had: as its instance, its contents, its ACL names, and its lock if that
// was ever held. Nobody may own a node.
func (t *Tree) Renew(generation api.Generation) {
	all := make([]*Node, 0, t.nodes.Len()) // a map does not change while it is passed through
	for n := range t.All() {
		all = append(all, n)
	}
	for _, n := range all {
		renewed := *n
		renewed.Instance, renewed.Content, renewed.ACLs = generation, generation, generation
		if n.Lock > 0 {
			renewed.Lock = generation
		}
		t.nodes.Set(keyOf(n.Name), &renewed)
	}
}

// adoptable reports whether a node can be, at its place in the tree.
func (t Tree) adoptable(n *Node, newest api.Generation) bool {
	if refuseName(n.Name) != nil || problemOfSelf(n) != "" || max(n.Instance, n.Content, n.ACLs, n.Lock) > newest {
		return false
	}
	if max(len(n.ACL.Read), len(n.ACL.Write), len(n.ACL.Change)) > api.MaxACLName || len(n.Creator) > api.MaxPrincipal {
		return false
	}
	if n.Quota != nil && (n.Quota.Limit.Nodes < 0 || n.Quota.Limit.Bytes < 0) {
		return false
	}
	permanent := func(kind api.Kind) bool { return n.Kind == kind && !n.Ephemeral }
	if n.Name == "" {
		return permanent(api.Directory) && t.counts.Nodes == 1
	}
	_, there := t.Get(n.Name)
	parent, placed := t.Get(n.Name.Parent())
	switch {
	case there || !placed || parent.Kind != api.Directory:
		return false
	case n.Name == api.ACLDir:
		return permanent(api.Directory)
	case n.Name.Parent() == api.ACLDir:
		return permanent(api.File)
	}
	return true
}
