package recipe

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Default bounds of a Tree.
const (
	DefaultTreeNodes = 10_000
	DefaultTreeBytes = 64 << 20
)

// Tree is everything below a directory, kept up to date here. Looking at it makes no call, whatever happens
// to the directory, the session or the cell.
//
// Each file is of one moment: contents and metadata belong together, and a file never goes back to an earlier
// version. Two files may be of two moments: a program that changes several related files writes one that
// names the others, last.
//
// It has its own session, or a client.Keeper's, reopened when lost, and, for each directory, a goroutine and
// a handle of the session, which has api.MaxHandles. Close waits for the goroutines. Its methods may be
// called from several goroutines.
type Tree struct {
	path  string
	o     TreeOptions
	reads chan struct{} // one for each node that is being opened

	upkeep       // its mutex guards all below, and the twigs; loaded: the tree was once complete
	top    *twig // which has the directory, if it exists, under the name "."
	nodes  int
	bytes  int
	behind map[*limb]bool // directories, changed or new, without a look since
}

// TreeNode is a file or a directory of a Tree, in one version.
type TreeNode struct {
	// Stat is client.Handle.Stat's, without the generation of the lock and the number of children (0), whose
	// changes a Tree does not hear of.
	Stat api.Stat
	// Contents are those of a file, shared by all callers: do not change them. Nil otherwise.
	Contents []byte
	// Err says why the contents of an existing node are not here: it may not be read (PermissionDenied),
	// which is tried again once in a lease; or it is an ephemeral directory (InvalidArgument), which
	// following would keep alive. After a change of its ACL names, a lost right to read shows soon; after a
	// change of an ACL's contents, when the session next opens the node, as a handle's rights are those of
	// its opening.
	Err error
}

// TreeOptions qualify WatchTree.
type TreeOptions struct {
	// MaxNodes and MaxBytes limit the files and directories, and the bytes of contents; 0 is DefaultTreeNodes
	// and DefaultTreeBytes. Over a larger directory the Tree stays as it is, with the error TooLarge, until
	// it shrinks.
	MaxNodes, MaxBytes int
	// OnError is called, from one goroutine, when the Tree cannot be kept up to date: it is too large, or the
	// directory may not be read. The lack of a session or a master does not count. The Tree retries every ten
	// seconds. OnError must not call Close. It may be nil.
	OnError func(error)
}

// twig is a kept node. Tree.mu guards it.
type twig struct {
	node  TreeNode
	below map[string]*twig // of a directory
}

// WatchTree waits until everything below a directory is here, and keeps it up to date until Close. An absent
// directory is a Tree without nodes, and is waited for; a recreated one is followed. ctx bounds the wait
// only. If ctx ends first, or there can be no Tree (TooLarge, PermissionDenied, NotDirectory), the error is
// the last obstacle. An ephemeral directory is InvalidArgument, as following would keep it permanently.
//
// from is a client.Config, for a session of its own, or a shared *client.Keeper, which Close leaves open. The
// start costs three calls for each file and directory, sixteen at a time. A change of a file costs two for
// its directory, and three to read it. It waits until all caches have dropped the file, at worst
// api.CacheLease. In a session without a cache each directory costs two more in each lease. A file deleted by
// its owner during a read here goes a moment later.
func WatchTree(ctx context.Context, from client.Sessions, dir string, o TreeOptions) (*Tree, error) {
	p, err := api.ParsePath(dir)
	if err != nil {
		return nil, err
	}
	if o.MaxNodes < 0 || o.MaxBytes < 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "watch", Path: dir, Message: fmt.Sprintf("MaxNodes is %d and MaxBytes %d; neither can be negative, and 0 is the default", o.MaxNodes, o.MaxBytes)}
	}
	o.MaxNodes, o.MaxBytes = cmp.Or(o.MaxNodes, DefaultTreeNodes), cmp.Or(o.MaxBytes, DefaultTreeBytes)
	t := newTree(p.String(), o)
	if err := t.begin(ctx, from, t.follow, "tree", dir); err != nil {
		return nil, err
	}
	return t, nil
}

func newTree(path string, o TreeOptions) *Tree {
	return &Tree{path: path, o: o, reads: make(chan struct{}, mostReads), upkeep: newUpkeep(o.OnError),
		top: &twig{below: map[string]*twig{}}, behind: map[*limb]bool{}}
}

// Get returns a node by its name below the directory, such as "web/limits", and whether it exists. "." is the
// directory itself. It makes no call.
func (t *Tree) Get(name string) (TreeNode, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.top.below["."]
	if name != "." {
		for part := range strings.SplitSeq(name, "/") {
			if at == nil {
				break
			}
			at = at.below[part]
		}
	}
	if at == nil {
		return TreeNode{}, false
	}
	return at.node, true
}

// All ranges over the nodes at the moment when the loop begins, by name: each directory, beginning with ".",
// before its contents. It makes no call.
func (t *Tree) All() iter.Seq2[string, TreeNode] {
	return func(yield func(string, TreeNode) bool) {
		type named struct {
			name string
			node TreeNode
		}
		var list []named
		var add func(name, prefix string, at *twig)
		add = func(name, prefix string, at *twig) {
			list = append(list, named{name, at.node})
			for _, part := range slices.Sorted(maps.Keys(at.below)) {
				add(prefix+part, prefix+part+"/", at.below[part])
			}
		}
		t.mu.Lock()
		if root := t.top.below["."]; root != nil {
			add(".", "", root)
		}
		t.mu.Unlock()
		for _, one := range list {
			if !yield(one.name, one.node) {
				return
			}
		}
	}
}

// Size returns the number of nodes, the directory itself included, and of bytes of contents.
func (t *Tree) Size() (nodes, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes, t.bytes
}

// Changed returns a channel that is closed at the next change of the tree, or of Fresh or Err, except when
// the lease runs out. Call it before looking, to miss nothing.
func (t *Tree) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Fresh reports whether the Tree matches the directory, to this process's knowledge: the session's lease
// runs, and every event was followed by a look. An unseen change is a moment old, or at most a lease if this
// process was just cut off; in a session that caches (the default), its writer then still waits. Or this
// program could not read the node at that time. A Tree is not fresh while the cell is away, after a change
// that could not be read yet, and while Err is not nil. It does not know the contents of a node with an Err.
func (t *Tree) Fresh() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	//mutant: return t.err == nil && len(t.behind) == 0 && t.c != nil //by TestTree of ./client/recipe
	return t.err == nil && len(t.behind) == 0 && t.c != nil && t.c.Left() > 0
}

// Err returns why the last attempt to update the Tree failed; nil when it is up to date again, and while it
// waits for a session or a master.
func (t *Tree) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Close ends the session, unless it is a Keeper's, in at most 5 s, and returns when nothing of the Tree runs.
// Its nodes stay, and are not Fresh.
func (t *Tree) Close() { t.end() }

// set keeps a node under a name in a directory. The error is TooLarge.
func (t *Tree) set(in *twig, name string, node TreeNode) (*twig, error) {
	node.Stat.Lock, node.Stat.Children = 0, 0
	t.mu.Lock()
	defer t.mu.Unlock()
	old := in.below[name]
	nodes, bytes := count(old)
	at := &twig{node: node}
	if old != nil && old.node.Stat.Kind == node.Stat.Kind && old.node.Stat.Instance == node.Stat.Instance {
		at = old
		nodes, bytes = 1, len(old.node.Contents) // its subtree stays
	}
	nodes, bytes = t.nodes-nodes+1, t.bytes-bytes+len(node.Contents)
	if err := t.bounds(nodes, bytes); err != nil {
		return nil, err
	}
	if at == old && at.node.equal(node) {
		return at, nil
	}
	at.node = node
	if at.below == nil && node.Stat.Kind == api.Directory {
		at.below = map[string]*twig{}
	}
	in.below[name] = at
	t.nodes, t.bytes = nodes, bytes
	t.broadcast()
	return at, nil
}

func (t *Tree) bounds(nodes, bytes int) error {
	if nodes <= t.o.MaxNodes && bytes <= t.o.MaxBytes {
		return nil
	}
	return &api.Error{Code: api.TooLarge, Op: "watch", Path: t.path,
		Message: fmt.Sprintf("there are at least %d nodes with %d bytes of contents below it; a tree of %d and %d bytes is kept", nodes, bytes, t.o.MaxNodes, t.o.MaxBytes)}
}

// retain removes the nodes of a directory, with all below them, unless keep, if any, says otherwise.
func (t *Tree) retain(in *twig, keep func(name string, node TreeNode) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, old := range in.below {
		if keep != nil && keep(name, old.node) {
			continue
		}
		nodes, bytes := count(old)
		delete(in.below, name)
		t.nodes, t.bytes = t.nodes-nodes, t.bytes-bytes
		t.broadcast()
	}
}

// count returns the nodes at and below one, and their bytes. Tree.mu is held.
func count(at *twig) (nodes, bytes int) {
	if at == nil {
		return 0, 0
	}
	nodes, bytes = 1, len(at.node.Contents)
	for _, one := range at.below {
		n, b := count(one)
		nodes, bytes = nodes+n, bytes+b
	}
	return nodes, bytes
}

func (n TreeNode) equal(o TreeNode) bool {
	return n.Stat == o.Stat && (n.Err == nil) == (o.Err == nil) && (n.Contents == nil) == (o.Contents == nil)
}
