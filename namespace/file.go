package namespace

import (
	"cmp"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Spec describes a node to be created.
type Spec struct {
	Kind      api.Kind
	Ephemeral bool
	Contents  []byte  // of a file; kept, so the caller must not change it
	ACL       api.ACL // empty names are inherited from the parent
	Opener    Owner   // of an ephemeral node
	Creator   string  // the principal against whose quota the node counts

	ModifiedUnix int64 // seconds since 1970, for display; 0 if unknown
}

// Write is a change of a file's contents.
type Write struct {
	Contents     []byte          // kept, so the caller must not change it
	IfContent    *api.Generation // unless nil, the content generation that the file must have
	ModifiedUnix int64           // seconds since 1970, for display; 0 if unknown
}

// Create makes a node. The errors are Exists if the name is taken (a dying node
// has its own message) or if the parent is dying, NotFound if there is no
// parent, NotDirectory if the parent is a file, TooLarge, and InvalidArgument
// for an invalid name or spec. The instance must be greater than that of every
// earlier node of that name: the caller draws it from the cell's counter.
func (t *Tree) Create(name api.Name, spec Spec, instance api.Generation) (*Node, error) {
	if err := spec.validate(name, instance); err != nil {
		return nil, err
	}
	if n, ok := t.Get(name); ok {
		if n.Dying() {
			return nil, &refusal.Refusal{Cause: refusal.NodeDying}
		}
		return nil, &refusal.Refusal{Cause: refusal.NodeExists, Kind: n.Kind}
	}
	parent, ok := t.Get(name.Parent())
	switch {
	case !ok:
		return nil, &refusal.Refusal{Cause: refusal.ParentUnknown, Name: name.Parent()}
	case parent.Kind != api.Directory:
		return nil, &refusal.Refusal{Cause: refusal.ParentIsFile, Name: name.Parent(), Kind: parent.Kind}
	case parent.Dying():
		return nil, &refusal.Refusal{Cause: refusal.ParentDying}
	}
	n := Node{
		Name:      name,
		Kind:      spec.Kind,
		Ephemeral: spec.Ephemeral,
		Instance:  instance,
		Content:   instance,
		ACLs:      instance,
		ACL:       inherit(spec.ACL, parent.ACL),
		Creator:   spec.Creator,

		ModifiedUnix: spec.ModifiedUnix,
	}
	if spec.Ephemeral {
		n.Openers = []Owner{spec.Opener}
	}
	created := n.withContents(spec.Contents)
	t.replace(parent, parent.withChildren(1), 0)
	t.add(created) // after its parent, which it counts against
	return created, nil
}

// validate checks a spec by itself, without the tree.
func (s Spec) validate(name api.Name, instance api.Generation) error {
	if err := CheckName(name); err != nil {
		return err
	}
	switch {
	case !s.Kind.Valid():
		return &refusal.Refusal{Cause: refusal.KindInvalid, Kind: s.Kind}
	case s.Kind == api.Directory && len(s.Contents) > 0:
		return &refusal.Refusal{Cause: refusal.DirectoryContents, Used: int64(len(s.Contents))}
	case max(len(s.ACL.Read), len(s.ACL.Write), len(s.ACL.Change)) > api.MaxACLName:
		return aclNameTooLong()
	case s.Ephemeral && s.Opener.Session == 0:
		return &refusal.Refusal{Cause: refusal.NoCreator}
	case instance == 0 || instance > api.MaxGeneration:
		return &refusal.Refusal{Cause: refusal.InstanceInvalid, Generation: instance}
	case len(s.Contents) > api.MaxContents:
		return tooLarge(s.Contents)
	}
	return nil
}

// inherit fills the empty names of own from another ACL (Chubby §2.3).
func inherit(own, from api.ACL) api.ACL {
	return api.ACL{Read: cmp.Or(own.Read, from.Read), Write: cmp.Or(own.Write, from.Write), Change: cmp.Or(own.Change, from.Change)}
}

// SetContents replaces a file's contents. It calls next for their generation, and only if it will
// write. The generation must be greater than that of any earlier contents of that name: the caller
// draws it from the cell's counter. The errors are GenerationMismatch, HandleClosed, IsDirectory
// and TooLarge.
func (t *Tree) SetContents(ref Ref, w Write, next func() api.Generation) (*Node, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case n.Kind == api.Directory:
		return nil, &refusal.Refusal{Cause: refusal.ContentsOfDirectory}
	case len(w.Contents) > api.MaxContents:
		return nil, tooLarge(w.Contents)
	case w.IfContent != nil && *w.IfContent != n.Content:
		return nil, &refusal.Refusal{Cause: refusal.ContentsChanged, Current: n.Content, Generation: *w.IfContent}
	}
	written := n.withContents(w.Contents)
	written.ModifiedUnix = w.ModifiedUnix
	if written.Content, err = newer(n.Content, next); err != nil {
		return nil, err
	}
	t.replace(n, written, 0)
	return written, nil
}

// newer draws a generation that must be greater than was.
func newer(was api.Generation, next func() api.Generation) (api.Generation, error) {
	g := next()
	if g <= was || g > api.MaxGeneration {
		return 0, &refusal.Refusal{Cause: refusal.CounterWentBack, Generation: g, Current: was}
	}
	return g, nil
}

// Delete removes a node. The errors are NotEmpty, LockHeld if a handle other
// than by holds its lock, HandleClosed, and PermissionDenied for the root. An
// ephemeral node that others have open is removed too (Chubby §2.3). A delay on
// the name stays.
func (t *Tree) Delete(ref Ref, by Owner) error {
	if ref.Name == "" {
		return &refusal.Refusal{Cause: refusal.RootIsPermanent}
	}
	n, err := t.Resolve(ref)
	if err != nil {
		return err
	}
	if n.Children > 0 {
		return &refusal.Refusal{Cause: refusal.DirectoryNotEmpty, Used: int64(n.Children)}
	}
	for _, h := range n.Holders {
		if h.Owner != by {
			return n.lockHeld(refusal.HeldNodeDeleted)
		}
	}
	t.remove(n)
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
