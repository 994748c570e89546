package recipe

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Bounds of a Tree for which its options name no other.
const (
	DefaultTreeNodes = 10_000
	DefaultTreeBytes = 64 << 20
)

// Tree is what is below a directory, kept up to date here: looking at it costs no call, and goes on
// whatever happens to the directory, the session or the cell.
//
// Each file is as it was at one moment: contents and metadata belong together, and a file that was seen in
// one version is never shown in an earlier one. Two files may be of two moments: a program that changes
// several files that belong together writes one that names the others, last.
//
// It has a session of its own, or one of a client.Keeper, opened again when it is lost; and, for each
// directory, a goroutine and a handle of the session, which has api.MaxHandles. Close waits for the
// goroutines. Its methods may be called from several goroutines.
type Tree struct {
	path    string
	o       TreeOptions
	upkeep        // its mutex guards what follows, and the twigs; loaded says that the tree has been whole
	root    *twig // nil: there is no such directory
	nodes   int
	bytes   int
	changed chan struct{} // closed and replaced when any of it changes
	behind  int           // directories that have changed, or are new, and were not looked at since
}

// TreeNode is a file or a directory of a Tree, in one version.
type TreeNode struct {
	// Stat is as client.Handle.Stat has it, without the generation of the lock and the number of
	// children, of whose changes a Tree is not told (0).
	Stat api.Stat
	// Contents are those of a file, and shared by all who ask: they must not be changed. Nil otherwise.
	Contents []byte
	// Err says why what is in it is not here, although the node is there: it may not be read
	// (PermissionDenied), which is tried again once in a lease; or it is an ephemeral directory
	// (InvalidArgument), which is not followed, since that would keep it from going. Who loses the right to
	// read a node by a change of its ACL names has this Err soon; by a change of what an ACL says, when
	// the session opens the node next, as the rights of a handle are those of its opening.
	Err error
}

// TreeOptions qualify WatchTree.
type TreeOptions struct {
	// MaxNodes and MaxBytes bound how many files and directories are kept, and how many bytes of contents; 0
	// is DefaultTreeNodes and DefaultTreeBytes. A directory with more has the Tree stay as it is, with an
	// error that is TooLarge, until it has less.
	MaxNodes, MaxBytes int
	// OnError is called, from one goroutine, when the Tree cannot be kept up to date, for another reason than that
	// there is no session or no master: it is too large, or the directory may not be read. It is tried again
	// every ten seconds. It must not call Close. Nil is not.
	OnError func(error)
}

// twig is a node as it is kept. Tree.mu guards it.
type twig struct {
	node  TreeNode
	below map[string]*twig // of a directory
}

// WatchTree waits until everything below a directory is here, and keeps it up to date until Close. A
// directory that is not there is a Tree without nodes, and is waited for; one that is deleted and made again is
// followed. ctx bounds the wait only. If it ends before, or there can be no Tree (TooLarge, PermissionDenied,
// NotDirectory), the error says what was in the way last. A directory that is ephemeral itself is
// InvalidArgument, since who follows it has it open, and would keep it for ever.
//
// from is a client.Config, for a session of its own, or a *client.Keeper, for one that others use too, which
// Close leaves open. To begin costs three calls for each file and directory, sixteen of them at a time; a
// change of a file costs two for its directory, and three to read it. A change waits until all
// who have it in their caches have dropped it, at worst for api.CacheLease. In a session without a
// cache each directory costs two once in a lease besides. A file that its owner deletes while it is read here
// goes a moment later.
func WatchTree(ctx context.Context, from client.Sessions, dir string, o TreeOptions) (*Tree, error) {
	p, err := api.ParsePath(dir)
	if err != nil {
		return nil, err
	}
	if o.MaxNodes < 0 || o.MaxBytes < 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "watch", Path: dir, Message: fmt.Sprintf("MaxNodes is %d and MaxBytes %d; neither can be negative, and 0 is the default", o.MaxNodes, o.MaxBytes)}
	}
	if o.MaxNodes == 0 {
		o.MaxNodes = DefaultTreeNodes
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultTreeBytes
	}
	t := &Tree{path: p.String(), o: o, upkeep: newUpkeep(), changed: make(chan struct{})}
	if err := t.begin(ctx, from, t, "tree", dir); err != nil {
		return nil, err
	}
	return t, nil
}

// enter takes note of the session; nil is none.
func (t *Tree) enter(c *client.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.c, t.behind = c, 0
	t.broadcast()
}

// fail reports an error, and whether the tree has been whole.
func (t *Tree) fail(err error) (loaded bool) {
	t.mu.Lock()
	loaded, t.err = t.loaded, err
	t.broadcast()
	t.mu.Unlock()
	if t.o.OnError != nil {
		t.o.OnError(err)
	}
	return loaded
}

// broadcast tells of a change. Tree.mu is held.
func (t *Tree) broadcast() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Get returns a node by its name below the directory, such as "web/limits", and whether it is there. "." is the
// directory itself. It makes no call.
func (t *Tree) Get(name string) (TreeNode, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.root
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

// All ranges over the nodes that are here at the moment when the loop begins, by name: each directory, beginning
// with ".", before what is in it. It makes no call.
func (t *Tree) All() iter.Seq2[string, TreeNode] {
	return func(yield func(string, TreeNode) bool) {
		for _, one := range t.list() {
			if !yield(one.name, one.node) {
				return
			}
		}
	}
}

// named is a node with its name.
type named struct {
	name string
	node TreeNode
}

func (t *Tree) list() []named {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]named, 0, t.nodes)
	var add func(name, prefix string, at *twig)
	add = func(name, prefix string, at *twig) {
		list = append(list, named{name, at.node})
		for _, part := range slices.Sorted(maps.Keys(at.below)) {
			add(prefix+part, prefix+part+"/", at.below[part])
		}
	}
	if t.root != nil {
		add(".", "", t.root)
	}
	return list
}

// Size returns how many nodes there are, the directory itself among them, and how many bytes of contents.
func (t *Tree) Size() (nodes, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes, t.bytes
}

// Changed returns a channel that is closed at the next change of the tree, or of what Fresh or Err return; but that
// the lease runs out it does not tell. Who takes it before looking misses nothing.
func (t *Tree) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Fresh reports whether the Tree is what there is below the directory, as far as can be known here: the session's
// lease runs, and nothing was heard that has not been looked at. Then a change that is not seen yet was made a
// moment ago; at worst a lease ago, if this process has just been cut off, and then in a session that caches (which is
// the rule) the writer has not been told yet that it was made; or if it was made while this program might not read
// the node. Not fresh is a Tree while the cell is away, after a
// change that could not be read yet, and while Err is not nil. What a node with an Err holds it does not know.
func (t *Tree) Fresh() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	//mutant: return t.err == nil && t.behind == 0 && t.c != nil //by TestTree of ./client/recipe
	return t.err == nil && t.behind == 0 && t.c != nil && t.c.Left() > 0
}

// Err returns why the Tree could not be kept up to date when that was last tried; nil when it is up to date again,
// and while it waits for a session or a master.
func (t *Tree) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Close ends the session, unless that is a Keeper's, which takes 5 s at most, and returns when nothing of the Tree
// runs any more. What is here stays, and is not Fresh.
func (t *Tree) Close() { t.end() }

// set makes a node what is kept by a name, "." or one in a directory. The error is TooLarge.
func (t *Tree) set(in *twig, name string, node TreeNode) (*twig, error) {
	node.Stat.Lock, node.Stat.Children = 0, 0
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.root
	if in != nil {
		old = in.below[name]
	}
	nodes, bytes := count(old)
	at := &twig{node: node}
	if old != nil && old.node.Stat.Kind == node.Stat.Kind && old.node.Stat.Instance == node.Stat.Instance {
		at = old
		nodes, bytes = 1, len(old.node.Contents) // what is below it stays
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
	if in != nil {
		in.below[name] = at
	} else {
		t.root = at
	}
	t.nodes, t.bytes = nodes, bytes
	t.broadcast()
	return at, nil
}

// bounds compares a size with what may be kept.
func (t *Tree) bounds(nodes, bytes int) error {
	if nodes <= t.o.MaxNodes && bytes <= t.o.MaxBytes {
		return nil
	}
	return &api.Error{Code: api.TooLarge, Op: "watch", Path: t.path,
		Message: fmt.Sprintf("there are at least %d nodes with %d bytes of contents below it; a tree of %d and %d bytes is kept", nodes, bytes, t.o.MaxNodes, t.o.MaxBytes)}
}

// clear removes what is kept by a name, or in a whole directory.
func (t *Tree) clear(in *twig, names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		old := in.below[name]
		if old == nil {
			continue
		}
		nodes, bytes := count(old)
		delete(in.below, name)
		t.nodes, t.bytes = t.nodes-nodes, t.bytes-bytes
		t.broadcast()
	}
}

// fell takes note that there is no such directory.
func (t *Tree) fell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root != nil {
		t.root, t.nodes, t.bytes = nil, 0, 0
		t.broadcast()
	}
}

// count returns how many nodes there are at and below one, with how many bytes. Tree.mu is held.
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
