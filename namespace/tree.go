package namespace

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/refusal"
)

// Tree is the name space. The zero Tree is not usable; New makes one. A copy is
// a snapshot: any number of goroutines may read it while one goroutine changes
// the original.
type Tree struct {
	nodes  cowmap.Map[nodeKey, *Node]
	owned  cowmap.Map[ownedKey, struct{}] // the nodes on which a session holds a lock or has an ephemeral node open
	delays cowmap.Map[api.Name, Delay]
	usage  cowmap.Map[string, Usage] // by creator
	counts Counts
}

// Counts is the size of a tree.
type Counts struct {
	Nodes   int   // the root included
	Bytes   int64 // of contents
	Lists   int64 // those of them that are access control lists
	Names   int64 // bytes of the names in nodes: their own, those of their lists and of their creators
	Locks   int   // held ones
	Limited int   // directories that have a quota
}

// What counts for Counts.Weight.
const (
	NodeWeight = 1 << 10 // of a node, beside its contents and names: the memory that it takes, in the indexes too
	ListWeight = 3       // of each byte of an access control list, which is kept parsed, too: a name in it of two bytes takes six more
)

// Weight is about how much memory the tree takes, in bytes: contents, of lists ListWeight times, names, and NodeWeight for each node.
func (c Counts) Weight() int64 {
	return c.Bytes + c.Lists*(ListWeight-1) + c.Names + int64(c.Nodes)*NodeWeight
}

// New returns a tree that holds only the root directory, as instance 1, with
// these ACL names.
func New(acl api.ACL) Tree {
	t := Tree{
		nodes:  cowmap.New[nodeKey, *Node](nodeKey.less),
		owned:  cowmap.New[ownedKey, struct{}](ownedKey.less),
		delays: cowmap.New[api.Name, Delay](cmp.Less[api.Name]),
		usage:  cowmap.New[string, Usage](cmp.Less[string]),
	}
	t.add(&Node{Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1, ACL: acl})
	return t
}

// Get returns the node of that name.
func (t Tree) Get(name api.Name) (*Node, bool) { return t.nodes.Get(keyOf(name)) }

// Resolve returns the node that ref names, or api.HandleClosed.
func (t Tree) Resolve(ref Ref) (*Node, error) {
	n, ok := t.Get(ref.Name)
	switch {
	case !ok:
		return nil, &refusal.Refusal{Cause: refusal.NodeGone}
	case n.Instance != ref.Instance:
		return nil, &refusal.Refusal{Cause: refusal.NodeRecreated, Current: n.Instance, Generation: ref.Instance}
	}
	return n, nil
}

// Children returns the nodes directly in the directory whose last component is
// greater than after, by name. It does not pass through those before.
func (t Tree) Children(name api.Name, after string) iter.Seq[*Node] {
	depth, prefix := name.Depth()+1, name+"/"
	first := nodeKey{depth: depth, name: prefix}
	//mutants: same (no name is below the prefix itself)
	if after != "" {
		first.name += api.Name(after + "\x00") // the least key that is greater
	}
	return func(yield func(*Node) bool) {
		for k, n := range t.nodes.From(first) {
			if k.depth != depth || !strings.HasPrefix(string(k.name), string(prefix)) || !yield(n) {
				return
			}
		}
	}
}

// Below returns the nodes at and below a name, each with its mark; nodes of
// less depth come first. With a mark it begins behind that node, and does not
// pass through those before.
func (t Tree) Below(name api.Name, behind Mark) iter.Seq2[Mark, *Node] {
	return func(yield func(Mark, *Node) bool) {
		for depth := name.Depth(); depth <= api.MaxDepth; depth++ {
			prefix, exact := name, depth == name.Depth()
			if !exact {
				prefix += "/"
			}
			first := nodeKey{depth: depth, name: prefix}
			if last, ok := behind.key(); ok && !last.less(first) {
				first = nodeKey{depth: last.depth, name: last.name + "\x00"} // the least key that is greater
			}
			for k, n := range t.nodes.From(first) {
				if k.depth != depth || !strings.HasPrefix(string(k.name), string(prefix)) || exact && k.name != prefix {
					break
				}
				if !yield(k.mark(), n) {
					return
				}
			}
		}
	}
}

// Mark returns the node's place in the order of Below.
func (n *Node) Mark() Mark { return keyOf(n.Name).mark() }

// All returns every node, parents before their children. Snapshots are written
// in this order.
func (t Tree) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, n := range t.nodes.All() {
			if !yield(n) {
				return
			}
		}
	}
}

// Locked returns the nodes at and below name whose locks are held, by name. The
// cost depends on what sessions hold and have open, not on the size of the
// tree. A separate index would make each Acquire and Release a third more
// expensive.
func (t Tree) Locked(name api.Name) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		var names []api.Name
		for owned := range t.owned.All() {
			n, ok := t.Get(owned.name)
			//mutants: same (what is indexed is there)
			if ok && n.held() && (n.Name == name || strings.HasPrefix(string(n.Name), string(name)+"/")) {
				names = append(names, n.Name)
			}
		}
		slices.Sort(names)
		for _, found := range slices.Compact(names) {
			//mutants: same (what is indexed is there)
			if n, ok := t.Get(found); ok && !yield(n) {
				return
			}
		}
	}
}

// Delay returns the lock-delay on a name.
func (t Tree) Delay(name api.Name) (Delay, bool) { return t.delays.Get(name) }

// Delays returns every lock-delay, by name.
func (t Tree) Delays() iter.Seq2[api.Name, Delay] { return t.DelaysFrom("") }

// DelaysFrom returns the lock-delays on the name first and on all later names.
func (t Tree) DelaysFrom(first api.Name) iter.Seq2[api.Name, Delay] { return t.delays.From(first) }

// OwnedBy returns the nodes on which a session holds a lock or has an ephemeral
// node open, by name.
func (t Tree) OwnedBy(session api.SessionID) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for owned := range t.owned.From(ownedKey{session: session}) {
			if owned.session != session {
				return
			}
			//mutants: same (what is indexed is there)
			if n, ok := t.Get(owned.name); ok && !yield(n) {
				return
			}
		}
	}
}

// Counts returns the size of the tree.
func (t Tree) Counts() Counts { return t.counts }

// add counts a node, or with the sign -1 no more.
func (c *Counts) add(n *Node, sign int) {
	c.Nodes += sign
	c.Bytes += int64(sign * len(n.Contents))
	c.Names += int64(sign * n.nameBytes())
	if n.isACLFile() {
		c.Lists += int64(sign * len(n.Contents))
	}
	if n.held() {
		c.Locks += sign
	}
	if n.Quota != nil {
		c.Limited += sign
	}
}

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
	t.counts.add(n, 1)
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
	t.counts.add(old, -1)
	t.counts.add(n, 1)
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
	t.counts.add(n, -1)
	t.charge(n, -1, -int64(len(n.Contents)))
}

// nodeKey is a node's key in the tree: its depth, then its name. So a directory's children
// are adjacent and in order, and parents come before their children (Chubby §2.10).
type nodeKey struct {
	depth int
	name  api.Name
}

func keyOf(name api.Name) nodeKey { return nodeKey{depth: name.Depth(), name: name} }

func (k nodeKey) less(other nodeKey) bool {
	if k.depth != other.depth {
		//mutants: same (they differ)
		return k.depth < other.depth
	}
	return k.name < other.name
}

// Mark is a place in the order of Tree.Below: directly after the node that
// returned it. Other packages must not interpret it. It is the depth in one byte, then the
// name; clients keep marks while a replica is upgraded.
type Mark []byte

// mark is the key as a Mark. No node is deeper than api.MaxDepth.
func (k nodeKey) mark() Mark { return append(Mark{byte(k.depth)}, k.name...) }

// key returns false for the empty mark.
func (m Mark) key() (nodeKey, bool) {
	if len(m) == 0 {
		return nodeKey{}, false
	}
	return nodeKey{depth: int(m[0]), name: api.Name(m[1:])}, true
}

// ownedKey is the key of a node in the index by session.
type ownedKey struct {
	session api.SessionID
	name    api.Name
}

func (k ownedKey) less(other ownedKey) bool {
	if k.session != other.session {
		//mutants: same (they differ)
		return k.session < other.session
	}
	return k.name < other.name
}

// CheckName returns InvalidArgument for a text that cannot be the name of a node. Parent, Base and
// Depth have a meaning only for names that it accepts.
func CheckName(name api.Name) error {
	if r := refuseName(name); r != nil {
		return r
	}
	return nil
}

// refuseName returns nil for a valid name.
func refuseName(name api.Name) *refusal.Refusal {
	switch {
	case name == "":
		return nil
	case len(name) > api.MaxPath:
		return &refusal.Refusal{Cause: refusal.NameTooLong, Used: int64(len(name)), Allowed: api.MaxPath}
	case name[0] != '/' || strings.HasSuffix(string(name), "/") || strings.Contains(string(name), "//"):
		return &refusal.Refusal{Cause: refusal.NameMalformed, Name: name}
	case name.Depth() > api.MaxDepth:
		return &refusal.Refusal{Cause: refusal.NameTooDeep, Used: int64(name.Depth()), Allowed: api.MaxDepth}
	}
	return nil
}

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
