package cell

import (
	"context"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s *service) Open(ctx context.Context, q *pb.OpenRequest) (*pb.OpenReply, error) {
	return inSession(s, "open", q.GetPath(), q.GetCaller(), func(m *Master, who caller) (*pb.OpenReply, error) {
		r, err := s.openRequest(m, who, q)
		if err != nil {
			return nil, err
		}
		o, err := m.files.open(ctx, r)
		if err != nil {
			return nil, about(r.path.String(), err)
		}
		return &pb.OpenReply{
			Handle:    signerOf(m).handle(o.handle),
			HandleId:  uint64(o.handle.owner.Handle),
			Created:   o.created,
			Stat:      pb.NewStat(o.stat),
			Cacheable: o.cacheable,
			Reusable:  o.reusable,
		}, nil
	})
}

// openRequest decodes and checks an Open.
func (s *service) openRequest(m *Master, who caller, q *pb.OpenRequest) (openRequest, error) {
	path, directory, err := s.openPath(m, who, q)
	if err != nil {
		return openRequest{}, err
	}
	mutation, err := mutationOf(who.session, q.GetMutation(), []byte("open"), []byte(path.String()), q.GetContents(),
		[]byte{byte(q.GetCreate()), byte(q.GetKind()), flag(q.GetEphemeral()), flag(q.GetRead()), flag(q.GetWrite()), flag(q.GetChangeAcl())},
		[]byte(q.GetAcl().GetRead()), []byte(q.GetAcl().GetWrite()), []byte(q.GetAcl().GetChange()))
	if err != nil {
		return openRequest{}, err
	}
	r := openRequest{mutation: mutation, path: path, directory: directory, create: raftfsm.Open{
		Create:    api.Create(q.GetCreate()),
		Kind:      api.Kind(q.GetKind()),
		Ephemeral: q.GetEphemeral(),
		Contents:  q.GetContents(),
		ACL:       aclOf(q.GetAcl()),
	}}
	for right, wanted := range map[namespace.Rights]bool{namespace.ToRead: q.GetRead(), namespace.ToWrite: q.GetWrite(), namespace.ToChange: q.GetChangeAcl()} {
		if wanted {
			r.handle.rights |= right
		}
	}
	r.create.Rights, r.create.Preconditions = r.handle.rights, directory.preconditions()
	for _, kind := range q.GetEvents() {
		if !api.EventKind(kind).Subscribable() {
			return openRequest{}, api.Errorf(api.InvalidArgument, "a handle cannot be opened for %v events: they are told to everybody whom they concern", api.EventKind(kind))
		}
		r.handle.events = r.handle.events.with(api.EventKind(kind))
	}
	r.handle.owner = namespace.Owner{Session: who.session, Handle: api.HandleID(mutation.Number)}
	r.handle.delay = time.Duration(q.GetLockDelayNs())
	return r, checkOpen(r)
}

// openPath returns the path that an Open names, absolute or relative to a
// directory's handle (Chubby §2.6), and that handle.
func (s *service) openPath(m *Master, who caller, q *pb.OpenRequest) (api.Path, handle, error) {
	text := q.GetPath()
	var directory handle
	if len(q.GetDirectory()) > 0 {
		var err error
		if directory, err = handleOf(m, who, q.GetDirectory()); err != nil {
			return api.Path{}, directory, err
		}
		if !directory.directory {
			return api.Path{}, directory, api.Errorf(api.NotDirectory, "the handle that the path is relative to is of a file")
		}
		text = m.epoch.path(directory.node.Name) + "/" + text
	}
	path, err := s.pathOf(text)
	return path, directory, err
}

func checkOpen(r openRequest) error {
	c := r.create
	switch {
	case !c.Create.Valid():
		return api.Errorf(api.InvalidArgument, "create is %d; see the protocol for its values", c.Create)
	case c.Kind != 0 && !c.Kind.Valid():
		return api.Errorf(api.InvalidArgument, "kind is %d; see the protocol for its values", c.Kind)
	case c.Kind == api.Directory && len(c.Contents) > 0:
		return api.Errorf(api.InvalidArgument, "a directory has no contents")
	case r.handle.delay < 0 || r.handle.delay > api.MaxLockDelay:
		return api.Errorf(api.InvalidArgument, "a lock-delay of %v; it must be between 0 and %v", r.handle.delay, api.MaxLockDelay)
	case r.handle.events.needRead() && r.handle.rights&namespace.ToRead == 0:
		return api.Errorf(api.InvalidArgument, "events of contents and children are for handles that may read; ask for read")
	case r.handle.rights == 0:
		return api.Errorf(api.InvalidArgument, "the handle is to be for nothing; ask for read, write or change-ACL")
	}
	if err := checkContents(c.Contents); err != nil {
		return err
	}
	return checkACL(c.ACL)
}

// checkACL checks that names can be those of files in the directory of ACLs.
func checkACL(acl api.ACL) error {
	for _, name := range []string{acl.Read, acl.Write, acl.Change} {
		if name == "" {
			continue
		}
		if len(name) > api.MaxACLName || strings.Contains(name, "/") {
			return api.Errorf(api.InvalidArgument, "%.40q cannot be the name of an ACL: want at most %d bytes and no slash", name, api.MaxACLName)
		}
		if _, err := api.ParsePath("/" + api.Root + "/" + api.LocalCell + string(namespace.ACLFile(name))); err != nil {
			return api.Errorf(api.InvalidArgument, "%.40q cannot be the name of an ACL: %v", name, err)
		}
	}
	return nil
}

func checkContents(contents []byte) error {
	if len(contents) > api.MaxContents {
		return api.Errorf(api.TooLarge, "the contents are %d bytes long; at most %d are allowed: keep large data elsewhere and its address here", len(contents), api.MaxContents)
	}
	return nil
}

func (s *service) Close(ctx context.Context, q *pb.CloseRequest) (*pb.CloseReply, error) {
	const op = "close"
	return onHandle(s, op, q, func(m *Master, h handle) (*pb.CloseReply, error) {
		mutation, err := mutationOf(h.owner.Session, q.GetMutation(), []byte(op), q.GetHandle())
		if err != nil {
			return nil, err
		}
		return &pb.CloseReply{}, m.files.close(ctx, mutation, h)
	})
}

// statIn describes a node by its path in this cell.
func statIn(m *Master, n *namespace.Node) (*pb.Stat, error) {
	path, err := n.Name.In(m.epoch.cell)
	if err != nil {
		return nil, err
	}
	return pb.NewStat(stat(n, path)), nil
}

func (s *service) GetContentsAndStat(ctx context.Context, q *pb.GetContentsAndStatRequest) (*pb.GetContentsAndStatReply, error) {
	return onHandle(s, "read", q, func(m *Master, h handle) (*pb.GetContentsAndStatReply, error) {
		node, cacheable, err := m.files.readToCache(ctx, h, namespace.ToRead)
		if err != nil {
			return nil, err
		}
		if node.Kind == api.Directory {
			return nil, api.Errorf(api.IsDirectory, "a directory has no contents; list it instead")
		}
		described, err := statIn(m, node)
		return &pb.GetContentsAndStatReply{Contents: node.Contents, Stat: described, Cacheable: cacheable}, err
	})
}

func (s *service) GetStat(ctx context.Context, q *pb.GetStatRequest) (*pb.GetStatReply, error) {
	return onHandle(s, "stat", q, func(m *Master, h handle) (*pb.GetStatReply, error) {
		node, cacheable, err := m.files.readToCache(ctx, h, 0)
		if err != nil {
			return nil, err
		}
		described, err := statIn(m, node)
		return &pb.GetStatReply{Stat: described, Cacheable: cacheable}, err
	})
}

func (s *service) ReadDir(ctx context.Context, q *pb.ReadDirRequest) (*pb.ReadDirReply, error) {
	return onHandle(s, "list", q, func(m *Master, h handle) (*pb.ReadDirReply, error) {
		p, err := m.files.readDir(ctx, h, q.GetAfter())
		if err != nil {
			return nil, err
		}
		reply := &pb.ReadDirReply{More: p.more, Cacheable: p.cacheable}
		for _, node := range p.children {
			described, err := statIn(m, node)
			if err != nil {
				return nil, err
			}
			reply.Children = append(reply.Children, described)
		}
		return reply, nil
	})
}

func (s *service) SetContents(ctx context.Context, q *pb.SetContentsRequest) (*pb.SetContentsReply, error) {
	const op = "write"
	return onHandle(s, op, q, func(m *Master, h handle) (*pb.SetContentsReply, error) {
		if err := checkContents(q.GetContents()); err != nil {
			return nil, err
		}
		mutation, err := mutationOf(h.owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), q.GetContents(), number(q.IfGeneration), []byte(q.GetIfSequencer()))
		if err != nil {
			return nil, err
		}
		preconditions, err := m.locks.preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		result, err := m.files.changeNode(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{SetContents: &raftfsm.SetContents{
			Mutation:      mutation,
			Node:          h.node,
			Contents:      q.GetContents(),
			IfContent:     generation(q.IfGeneration),
			Preconditions: preconditions,
		}})
		if err != nil {
			return nil, err
		}
		described, err := result.Stat.In(m.epoch.cell)
		return &pb.SetContentsReply{Stat: pb.NewStat(described)}, err
	})
}

func (s *service) Delete(ctx context.Context, q *pb.DeleteRequest) (*pb.DeleteReply, error) {
	const op = "delete"
	return onHandle(s, op, q, func(m *Master, h handle) (*pb.DeleteReply, error) {
		mutation, err := mutationOf(h.owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), []byte(q.GetIfSequencer()))
		if err != nil {
			return nil, err
		}
		preconditions, err := m.locks.preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		_, err = m.files.changeNode(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{Delete: &raftfsm.Delete{
			Mutation:      mutation,
			Node:          h.node,
			Handle:        h.owner.Handle,
			Preconditions: preconditions,
		}})
		return &pb.DeleteReply{}, err
	})
}

func (s *service) SetACL(ctx context.Context, q *pb.SetACLRequest) (*pb.SetACLReply, error) {
	const op = "set ACL"
	return onHandle(s, op, q, func(m *Master, h handle) (*pb.SetACLReply, error) {
		acl := aclOf(q.GetAcl())
		mutation, err := mutationOf(h.owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), []byte(acl.Read), []byte(acl.Write), []byte(acl.Change),
			number(q.IfGeneration), []byte(q.GetIfSequencer()))
		if err == nil {
			err = checkACL(acl)
		}
		if err != nil {
			return nil, err
		}
		preconditions, err := m.locks.preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		result, err := m.files.changeNode(ctx, h, namespace.ToChange, mutation, raftfsm.Command{SetACL: &raftfsm.SetACL{
			Mutation:      mutation,
			Node:          h.node,
			ACL:           acl,
			IfACLs:        generation(q.IfGeneration),
			Preconditions: preconditions,
		}})
		if err != nil {
			return nil, err
		}
		described, err := result.Stat.In(m.epoch.cell)
		return &pb.SetACLReply{Stat: pb.NewStat(described)}, err
	})
}

func aclOf(a *pb.ACL) api.ACL {
	return api.ACL{Read: a.GetRead(), Write: a.GetWrite(), Change: a.GetChange()}
}
