package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Read returns the node of a handle as it is at some moment after the call
// began: the proof of leadership comes first, the look second. So is a refusal
// proved.
func (f *Files) Read(ctx context.Context, h Handle, right namespace.Rights) (*namespace.Node, error) {
	node, _, err := f.read(ctx, h, right, purpose{})
	return node, err
}

// look returns the node of a handle as it is now.
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

// ReadToCache returns the node of a handle as Read does, and whether the client
// may keep what it is told: whoever reads is entered among those who may have the
// node in a cache before the look, and after it is known that it may read so.
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

// ReadDir returns a page of a directory, of at most as many children as most, as in newPage.
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

// statBytes is how long a node's metadata is in a reply, with room to spare.
func statBytes(n *namespace.Node) int {
	const plain = 128 // numbers, and /ls/<cell>
	return plain + len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change)
}
