package namespace

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Check verifies every invariant of the tree: parents exist and count their
// children, indexes and counts agree with the nodes, held locks have holders
// and generations, and no two holders conflict. It reports the first problem as
// Corrupt. It reads the whole tree, contents too, so it is for tests and for
// snapshots that were just read.
func (t Tree) Check() error {
	if root, ok := t.Get(""); !ok || root.Kind != api.Directory || root.Ephemeral {
		return api.Errorf(api.Corrupt, "the tree has no root that is a permanent directory")
	}
	var counts Counts
	owned := 0
	usage := map[string]Usage{}
	for n := range t.All() {
		if problem := t.problem(n); problem != "" {
			return api.Errorf(api.Corrupt, "the node %q %s", n.Name, problem)
		}
		counts.add(n, 1)
		usage[n.Creator] = usage[n.Creator].plus(1, int64(len(n.Contents)))
		owners := n.owners()
		slices.Sort(owners)
		owned += len(slices.Compact(owners))
	}
	if counts != t.counts || owned != t.owned.Len() {
		return api.Errorf(api.Corrupt, "the tree counts %+v, and %d that sessions own; it has %+v and %d", t.counts, t.owned.Len(), counts, owned)
	}
	if err := t.checkUsage(usage); err != nil {
		return err
	}
	for name, d := range t.Delays() {
		if refuseName(name) != nil || !d.Mode.Valid() || d.For <= 0 || d.For > api.MaxLockDelay {
			return api.Errorf(api.Corrupt, "the lock-delay on %q, in %v mode for %v, cannot be", name, d.Mode, d.For)
		}
	}
	return nil
}

// checkUsage compares the index by creator with the usage that was counted.
func (t Tree) checkUsage(counted map[string]Usage) error {
	if t.usage.Len() != len(counted) {
		return api.Errorf(api.Corrupt, "the tree counts what %d principals use, and %d use something", t.usage.Len(), len(counted))
	}
	for creator, used := range counted {
		if t.Usage(creator) != used {
			return api.Errorf(api.Corrupt, "the tree counts %+v for %q, which uses %+v", t.Usage(creator), creator, used)
		}
	}
	return nil
}

// problem says what is wrong with a node, "" if nothing is.
func (t Tree) problem(n *Node) string {
	problems := []func(*Node) string{t.problemOfIndex, t.problemOfPlace, problemOfSelf, problemOfOpeners, t.problemOfLock}
	for _, f := range problems {
		if problem := f(n); problem != "" {
			return problem
		}
	}
	return ""
}

func (t Tree) problemOfPlace(n *Node) string {
	if r := refuseName(n.Name); r != nil {
		return "cannot be: " + r.Message()
	}
	children := 0
	for range t.Children(n.Name, "") {
		children++
	}
	parent, ok := t.Get(n.Name.Parent())
	switch {
	case !ok || parent.Kind != api.Directory:
		return "is not in a directory"
	case children != n.Children:
		return "counts its children wrong"
	case n.Quota != nil && n.Quota.Used != t.below(n):
		return "counts what is below it wrong"
	}
	return ""
}

func problemOfSelf(n *Node) string {
	switch {
	case !n.Kind.Valid():
		return "is neither a file nor a directory"
	case n.Instance == 0 || n.Content == 0 || n.ACLs == 0:
		return "has a generation of 0"
	case max(n.Instance, n.Content, n.ACLs, n.Lock) > api.MaxGeneration:
		return "has a generation beyond the last"
	case n.Kind == api.Directory && len(n.Contents) > 0:
		return "is a directory and has contents"
	case len(n.Contents) > api.MaxContents:
		return "has more contents than are allowed"
	case n.Quota != nil && n.Kind != api.Directory:
		return "has a quota and is no directory"
	case n.isACLFile() != (n.list != nil):
		return "is an access control list that was not read, or is none"
	case n.Checksum != checksum(n.Contents):
		return "has contents that do not match their checksum"
	}
	return ""
}

func problemOfOpeners(n *Node) string {
	if !n.Ephemeral && len(n.Openers) > 0 {
		return "is permanent and has openers"
	}
	for i, o := range n.Openers {
		if o.Session == 0 || i > 0 && n.Openers[i-1].compare(o) >= 0 {
			return "has openers that are out of order, or no session"
		}
	}
	return ""
}

func (t Tree) problemOfLock(n *Node) string {
	switch {
	case !n.held() && (n.Mode != 0 || n.Revoked != nil):
		return "has a lock that is held by nobody"
	case !n.held():
		return ""
	case !n.Mode.Valid() || n.Lock == 0:
		return "has a lock that is held in no mode or generation"
	case n.Mode == api.Exclusive && len(n.Holders) > 1:
		return "has a lock that several hold exclusively"
	}
	seen := make(map[Owner]bool, len(n.Holders))
	for _, h := range n.Holders {
		_, open := n.opener(h.Owner)
		switch {
		case h.validate(n.Mode) != nil:
			return "has a lock whose holder could not have asked for it"
		case seen[h.Owner]:
			return "has a lock that a handle holds twice"
		case n.Ephemeral && !open:
			return "is ephemeral and locked by a handle that does not have it open"
		}
		seen[h.Owner] = true
	}
	if d, ok := t.Delay(n.Name); ok && d.Mode.Conflicts(n.Mode) {
		return "has a lock that is held in spite of its delay"
	}
	return ""
}

// problemOfIndex finds what is missing from the index by session. Check finds
// superfluous entries by the length of the index.
func (t Tree) problemOfIndex(n *Node) string {
	//mutants: same (what is not found is not n)
	if found, ok := t.Get(n.Name); !ok || found != n {
		return "is not found under its name"
	}
	for _, session := range n.owners() {
		if _, ok := t.owned.Get(ownedKey{session, n.Name}); !ok {
			return "is missing from the index by session"
		}
	}
	return ""
}

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
