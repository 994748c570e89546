package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Read returns a handle's node at a moment after the call began: it proves leadership first. So a refusal is
// proved, too.
func (f *Files) Read(ctx context.Context, h Handle, right namespace.Rights) (*namespace.Node, error) {
	node, _, err := f.read(ctx, h, right, purpose{})
	return node, err
}

// look returns the current node of a handle.
func (e *epoch) look(h Handle) (*namespace.Node, error) {
	state := e.state()
	if _, ok := state.Sessions.Get(h.Owner.Session); !ok {
		return nil, sessionExpired(h.Owner.Session)
	}
	for _, g := range h.Preconditions() {
		if err := state.CheckPrecondition(g); err != nil {
			return nil, err
		}
	}
	return state.Tree.Resolve(h.Node)
}

// ReadToCache is Read, and reports whether the client may cache the node. It registers the session as a
// reader before it reads, and after it has checked the right to.
func (f *Files) ReadToCache(ctx context.Context, h Handle, right namespace.Rights) (node *namespace.Node, cacheable bool, err error) {
	return f.read(ctx, h, right, purpose{looking: true, caching: true})
}

func (f *Files) read(ctx context.Context, h Handle, right namespace.Rights, to purpose) (node *namespace.Node, cacheable bool, err error) {
	if _, err := f.epoch.fence.Prove(ctx); err != nil {
		return nil, false, err
	}
	if err := f.use(h, right, to); err != nil {
		return nil, false, err
	}
	cacheable = to.caching && f.epoch.mayKeep(h, h.Node.Name) && f.coherence.registerReader(h.Owner.Session, h.Node.Name)
	node, err = f.epoch.look(h)
	return node, cacheable, err
}

// DirectoryPage is a page of a directory.
type DirectoryPage struct {
	Children  []*namespace.Node
	More      bool
	Cacheable bool
}

// ReadDir returns a page of at most most children, as in newPage.
func (f *Files) ReadDir(ctx context.Context, h Handle, after string, most int) (DirectoryPage, error) {
	node, cacheable, err := f.read(ctx, h, namespace.ToRead, purpose{looking: after == "", caching: true})
	if err != nil {
		return DirectoryPage{}, err
	}
	if node.Kind != api.Directory {
		return DirectoryPage{}, api.Errorf(api.NotDirectory, "only directories have children")
	}
	p := DirectoryPage{Cacheable: cacheable}
	bytes, length := 0, pageLength(most)
	for child := range f.epoch.state().Tree.Children(h.Node.Name, after) {
		if len(p.Children) == length || bytes >= api.MaxPageBytes {
			p.More = true
			break
		}
		p.Children = append(p.Children, child)
		bytes += statBytes(child)
	}
	return p, nil
}

// statBytes bounds the length of a node's metadata in a reply.
func statBytes(n *namespace.Node) int {
	const plain = 128 // numbers, and /ls/<cell>
	return plain + len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change)
}
