package namespace

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Tree is the name space. The zero Tree is not usable; New makes one. A copy is
// a snapshot: any number of goroutines may read it while one goroutine changes
// the original.
type Tree struct {
	nodes  *iradix.Tree[*Node]    // by key: depth, then name, so that siblings are adjacent (Chubby §2.10)
	owned  *iradix.Tree[struct{}] // by session and name: the nodes on which a session holds a lock or has an ephemeral node open
	delays *iradix.Tree[Delay]    // by name
	usage  *iradix.Tree[Usage]    // by creator
	counts Counts
}

// Counts is the size of a tree.
type Counts struct {
	Nodes   int   // the root included
	Bytes   int64 // of contents
	Locks   int   // held ones
	Limited int   // directories that have a quota
}

// New returns a tree that holds only the root directory, as instance 1, with
// these ACL names.
func New(acl api.ACL) Tree {
	t := Tree{nodes: iradix.New[*Node](), owned: iradix.New[struct{}](), delays: iradix.New[Delay](), usage: iradix.New[Usage]()}
	e := t.edit()
	e.add(&Node{Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1, ACL: acl})
	e.commit()
	return t
}

// Get returns the node of that name.
func (t Tree) Get(name api.Name) (*Node, bool) {
	var buf [128]byte // most keys fit, and then Get does not allocate
	return t.nodes.Get(appendKey(buf[:0], name))
}

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
	prefix := childrenKey(name)
	first := prefix
	if after != "" {
		first = append(bytes.Clone(prefix), after+"\x00"...) // the least key that is greater
	}
	return func(yield func(*Node) bool) {
		i := t.nodes.Root().Iterator()
		i.SeekLowerBound(first)
		for k, n, ok := i.Next(); ok && bytes.HasPrefix(k, prefix) && yield(n); k, n, ok = i.Next() {
		}
	}
}

// Below returns the nodes at and below a name, each with its mark; nodes of
// less depth come first. With a mark it begins behind that node, and does not
// pass through those before.
func (t Tree) Below(name api.Name, behind Mark) iter.Seq2[Mark, *Node] {
	return func(yield func(Mark, *Node) bool) {
		for depth := name.Depth(); depth <= api.MaxDepth; depth++ {
			prefix := append([]byte{byte(depth)}, name...)
			exact := depth == name.Depth()
			if !exact {
				prefix = append(prefix, '/')
			}
			first := prefix
			if bytes.Compare(behind, first) >= 0 {
				first = append(bytes.Clone(behind), 0) // the least key that is greater
			}
			i := t.nodes.Root().Iterator()
			i.SeekLowerBound(first)
			for k, n, ok := i.Next(); ok && bytes.HasPrefix(k, prefix); k, n, ok = i.Next() {
				if exact && len(k) > len(prefix) {
					break
				}
				if !yield(k, n) {
					return
				}
			}
		}
	}
}

// Mark returns the node's place in the order of Below.
func (n *Node) Mark() Mark { return key(n.Name) }

// All returns every node, parents before their children. Snapshots are written
// in this order.
func (t Tree) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		i := t.nodes.Root().Iterator()
		for _, n, ok := i.Next(); ok && yield(n); _, n, ok = i.Next() {
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
		for n := range t.marked(nil) {
			if n.held() && (n.Name == name || strings.HasPrefix(string(n.Name), string(name)+"/")) {
				names = append(names, n.Name)
			}
		}
		slices.Sort(names)
		for _, found := range slices.Compact(names) {
			if n, ok := t.Get(found); ok && !yield(n) {
				return
			}
		}
	}
}

// Delay returns the lock-delay on a name.
func (t Tree) Delay(name api.Name) (Delay, bool) { return t.delays.Get([]byte(name)) }

// Delays returns every lock-delay, by name.
func (t Tree) Delays() iter.Seq2[api.Name, Delay] { return t.DelaysFrom("") }

// DelaysFrom returns the lock-delays on the name first and on all later names.
func (t Tree) DelaysFrom(first api.Name) iter.Seq2[api.Name, Delay] {
	return func(yield func(api.Name, Delay) bool) {
		i := t.delays.Root().Iterator()
		i.SeekLowerBound([]byte(first))
		for k, d, ok := i.Next(); ok && yield(api.Name(k), d); k, d, ok = i.Next() {
		}
	}
}

// OwnedBy returns the nodes on which a session holds a lock or has an ephemeral
// node open, by name.
func (t Tree) OwnedBy(session api.SessionID) iter.Seq[*Node] { return t.marked(ownedKey(session, "")) }

// Counts returns the size of the tree.
func (t Tree) Counts() Counts { return t.counts }

// marked returns the nodes whose keys in the index by session have that prefix.
func (t Tree) marked(prefix []byte) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		i := t.owned.Root().Iterator()
		i.SeekPrefix(prefix)
		for k, _, ok := i.Next(); ok; k, _, ok = i.Next() {
			if n, ok := t.Get(api.Name(k[sessionBytes:])); ok && !yield(n) {
				return
			}
		}
	}
}
