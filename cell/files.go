package cell

import (
	"cmp"
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// openRequest is a decoded and validated Open.
type openRequest struct {
	mutation session.Mutation
	path     api.Path
	handle   handle // what was asked for; the rest is known when the node is
	create   raftfsm.Open
}

// opened is what Open answers.
type opened struct {
	handle  handle
	created bool
	stat    api.Stat

	cacheable bool // the client may keep the stat
	reusable  bool // and may use the handle for another Open
}

// open opens a node. One that is there and permanent needs no log entry; one
// that may have to be created, or is ephemeral, goes through the log.
func (m *master) open(ctx context.Context, r openRequest) (opened, error) {
	name := r.path.Name()
	cacheable := m.remember(r.mutation.Session, name)
	reusable := cacheable && m.remember(r.mutation.Session, namespace.ACLs) // the right to open it may change there
	if _, err := m.fence.prove(ctx); err != nil {
		return opened{}, err
	}
	node, there := m.state().Tree.Get(name)
	if there && !node.Ephemeral && r.create.Create != api.MustCreate && !m.answered(r.mutation) {
		state := m.state()
		if err := state.MayOpen(r.mutation.Session, node, &r.create); err != nil {
			return opened{}, err
		}
		for _, g := range r.create.Guards {
			if err := state.Stands(g); err != nil {
				return opened{}, err
			}
		}
		o, err := m.opened(r, stat(node, r.path), false)
		o.cacheable, o.reusable = cacheable, reusable
		return o, err
	}
	if !there && r.create.Create == api.MustExist {
		absent := api.Errorf(api.NotFound, "there is no such node; create it, or check the spelling with chubbyctl ls %s", r.path.Parent())
		absent.Cacheable = cacheable
		return opened{}, absent
	}
	r.create.Mutation, r.create.Name = r.mutation, name
	result, err := m.openLogged(ctx, r)
	if err != nil {
		return opened{}, err
	}
	described, err := result.Stat.In(r.path.Cell())
	if err != nil {
		return opened{}, err
	}
	return m.opened(r, described, result.Created)
}

// openLogged opens a node through the log. Only a node that must exist is sure
// not to be created: another may go between the look and the log.
func (m *master) openLogged(ctx context.Context, r openRequest) (raftfsm.Result, error) {
	c := raftfsm.Command{Open: &r.create}
	if r.create.Create == api.MustExist {
		return m.propose(ctx, c)
	}
	return m.mutate(ctx, r.mutation, c, touched(r.create.Name)...)
}

// answered reports whether a request has been done before; its retry then goes
// through the log, to be answered as it was.
func (m *master) answered(mutation session.Mutation) bool {
	s, ok := m.state().Sessions.Get(mutation.Session)
	if !ok {
		return false
	}
	at, found := slices.BinarySearchFunc(s.Open, mutation.Number, func(r session.Request[raftfsm.Answer], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
	return found && s.Open[at].Done
}

// opened enters the handle into the table and answers with the node as it is at
// that moment, which may be later than the look that found it: what was observed
// before is in the answer, and what is observed from then on is an event. A node
// that has gone meanwhile is an event, too.
func (m *master) opened(r openRequest, s api.Stat, created bool) (opened, error) {
	h := r.handle
	h.node = namespace.Ref{Name: r.path.Name(), Instance: s.Instance}
	h.epoch, h.ephemeral, h.directory = m.epoch, s.Ephemeral, s.Kind == api.Directory
	principal := m.principal(h.owner.Session)
	allowed := m.state().Quota(principal).Handles
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.handles.add(h, principal, allowed); err != nil {
		return opened{}, err
	}
	if node, err := m.state().Tree.Resolve(h.node); err == nil {
		s = stat(node, r.path)
	} else {
		m.tellRemoved(h.owner, h.node)
	}
	return opened{handle: h, created: created, stat: s}, nil
}

// stat describes a node by the path it was asked for.
func stat(n *namespace.Node, path api.Path) api.Stat {
	s := n.Stat()
	s.Path = path
	return s
}

// close closes a handle and releases the lock it holds. It does not fail for a
// handle that is closed already, or whose node is gone (Chubby §2.6).
func (m *master) close(ctx context.Context, mutation session.Mutation, h handle) error {
	m.mu.Lock()
	one, err := m.handles.get(h, m.epoch, m.principal(h.owner.Session))
	if err != nil && !m.answered(mutation) {
		m.mu.Unlock()
		return nil
	}
	node, gone := m.state().Tree.Resolve(h.node)
	logged := h.ephemeral || one == nil || one.locks || gone == nil && node.Holds(h.owner)
	m.handles.close(h, m.epoch)
	for _, w := range m.queues.of(h.owner.Session) {
		if w.claim.Handle == h.owner.Handle {
			m.queues.finish(w.key(), raftfsm.Answer{Code: api.HandleClosed, Message: "the handle was closed while the request waited"})
		}
	}
	var successors []raftfsm.Claim
	if logged {
		successors = offer(m.queues.leading(h.node.Name, 0))
	}
	m.mu.Unlock()
	if !logged {
		return nil
	}
	_, err = m.propose(ctx, raftfsm.Command{Close: &raftfsm.Close{Mutation: mutation, Node: h.node, Handle: h.owner.Handle, Successors: successors}})
	return err
}

// use checks that a handle is open, and was opened for what is to be done.
func (m *master) use(h handle, right namespace.Rights, locking bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, err := m.handles.get(h, m.epoch, m.principal(h.owner.Session))
	if err != nil {
		return err
	}
	one.locks = one.locks || locking
	if h.rights&right != right {
		need := map[namespace.Rights]string{
			namespace.ToRead: "reading", namespace.ToWrite: "writing and locking", namespace.ToChange: "changing its ACL",
		}[right]
		return api.Errorf(api.PermissionDenied, "the handle was not opened for %s; open the node so", need)
	}
	return nil
}

// principal returns whom a session belongs to.
func (m *master) principal(id api.SessionID) string {
	if s, ok := m.state().Sessions.Get(id); ok {
		return s.Principal
	}
	return ""
}

// read returns the node of a handle as it is at some moment after the call
// began: the proof of leadership comes first, the look second.
func (m *master) read(ctx context.Context, h handle, right namespace.Rights) (*namespace.Node, error) {
	if err := m.use(h, right, false); err != nil {
		return nil, err
	}
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	state := m.state()
	if _, ok := state.Sessions.Get(h.owner.Session); !ok {
		return nil, sessionExpired(h.owner.Session)
	}
	for _, g := range h.guards() {
		if err := state.Stands(g); err != nil {
			return nil, err
		}
	}
	return state.Tree.Resolve(h.node)
}

// readToCache returns the node of a handle as read does, and whether the client
// may keep what it is told: whoever reads is entered among those who may have the
// node in a cache before the look.
func (m *master) readToCache(ctx context.Context, h handle, right namespace.Rights) (node *namespace.Node, cacheable bool, err error) {
	cacheable = m.remember(h.owner.Session, h.node.Name)
	node, err = m.read(ctx, h, right)
	return node, cacheable, err
}

// pageSize bounds the children in one ReadDir reply.
const pageSize = 1000

// page is a page of a directory.
type page struct {
	children  []*namespace.Node
	more      bool
	cacheable bool
}

// readDir returns a page of a directory.
func (m *master) readDir(ctx context.Context, h handle, after string) (page, error) {
	node, cacheable, err := m.readToCache(ctx, h, namespace.ToRead)
	if err != nil {
		return page{}, err
	}
	if node.Kind != api.Directory {
		return page{}, api.Errorf(api.NotDirectory, "only directories have children")
	}
	p := page{cacheable: cacheable}
	for child := range m.state().Tree.Children(h.node.Name, after) {
		if len(p.children) == pageSize {
			p.more = true
			break
		}
		p.children = append(p.children, child)
	}
	return p, nil
}
