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
