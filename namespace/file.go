package namespace

import (
	"cmp"
	"iter"

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

// Usage is what a part of the tree holds.
type Usage struct {
	Nodes int   `cbor:"1,keyasint,omitempty"`
	Bytes int64 `cbor:"2,keyasint,omitempty"` // of contents
}

func (u Usage) plus(nodes int, bytes int64) Usage {
	return Usage{Nodes: u.Nodes + nodes, Bytes: u.Bytes + bytes}
}

// Quota bounds what may be below a directory, and counts it. A Quota that is in
// a tree never changes.
type Quota struct {
	Limit Usage `cbor:"1,keyasint"` // a field that is 0 sets no limit
	Used  Usage `cbor:"2,keyasint"`
}

// Usage returns how much the existing nodes that a principal created use.
func (t Tree) Usage(creator string) Usage {
	u, _ := t.usage.Get(creator)
	return u
}

// Creators returns the principals that created existing nodes, by name, beginning behind the name
// after.
func (t Tree) Creators(after string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for creator := range t.usage.From(after) {
			if creator != after && !yield(creator) {
				return
			}
		}
	}
}

// SetQuota bounds what may be below a directory; the zero Usage removes the
// quota. What is there already stays, even if it is more. The errors are
// HandleClosed, NotDirectory and InvalidArgument. It reads everything below the
// directory.
func (t *Tree) SetQuota(ref Ref, limit Usage) (*Node, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case n.Kind != api.Directory:
		return nil, &refusal.Refusal{Cause: refusal.QuotaOfFile}
	case limit.Nodes < 0 || limit.Bytes < 0:
		return nil, &refusal.Refusal{Cause: refusal.QuotaNegativeBelow, Quota: &api.Quota{Nodes: limit.Nodes, Bytes: limit.Bytes}}
	}
	next := *n
	next.Quota = nil
	if limit != (Usage{}) {
		next.Quota = &Quota{Limit: limit, Used: t.below(n)}
	}
	t.replace(n, &next, 0)
	return &next, nil
}

// below counts everything below a directory.
func (t Tree) below(dir *Node) Usage {
	var u Usage
	for child := range t.Children(dir.Name, "") {
		u = u.plus(1, int64(len(child.Contents)))
		//mutants: same (it only saves work)
		if child.Children > 0 {
			deeper := t.below(child)
			u = u.plus(deeper.Nodes, deeper.Bytes)
		}
	}
	return u
}

// CheckQuota returns QuotaExceeded if more would exceed the quota of a directory above the name,
// and InvalidArgument for an invalid name.
func (t Tree) CheckQuota(name api.Name, more Usage) error {
	//mutants: same (it only saves work)
	if err := CheckName(name); err != nil || t.counts.Limited == 0 {
		return err
	}
	for at := name; at != ""; {
		at = at.Parent()
		dir, ok := t.Get(at)
		if !ok || dir.Quota == nil {
			continue
		}
		if r := dir.Quota.Limit.Check(dir.Quota.Used, more, refusal.NodeQuotaBelow, refusal.ByteQuotaBelow); r != nil {
			r.Name = at
			return r
		}
	}
	return nil
}

// Check returns a refusal if used and more together exceed the limit: with the cause nodes for too
// many nodes, or bytes for too many bytes. The caller adds whose limit it is.
func (u Usage) Check(used, more Usage, nodes, bytes refusal.Cause) *refusal.Refusal {
	switch {
	case more.Nodes > 0 && u.Nodes > 0 && used.Nodes+more.Nodes > u.Nodes:
		return &refusal.Refusal{Cause: nodes, Used: int64(used.Nodes), Allowed: int64(u.Nodes)}
	case more.Bytes > 0 && u.Bytes > 0 && used.Bytes+more.Bytes > u.Bytes:
		return &refusal.Refusal{Cause: bytes, Used: used.Bytes, Allowed: u.Bytes, More: more.Bytes}
	}
	return nil
}

// charge adds a change of what a node holds to the usage of its creator and of
// every directory above it that has a quota.
func (t *Tree) charge(n *Node, nodes int, bytes int64) {
	//mutants: same (it only saves work)
	if nodes == 0 && bytes == 0 {
		//mutants: same (it only saves work)
		return
	}
	if used := t.Usage(n.Creator).plus(nodes, bytes); used == (Usage{}) {
		t.usage.Delete(n.Creator)
	} else {
		t.usage.Set(n.Creator, used)
	}
	//mutants: same (it only saves work)
	for at := n.Name; at != "" && t.counts.Limited > 0; {
		at = at.Parent()
		dir, ok := t.Get(at)
		//mutants: same (each node is in a directory)
		if !ok || dir.Quota == nil {
			continue
		}
		next := *dir
		next.Quota = &Quota{Limit: dir.Quota.Limit, Used: dir.Quota.Used.plus(nodes, bytes)}
		t.nodes.Set(keyOf(at), &next)
	}
}
