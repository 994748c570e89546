package wire

import (
	"context"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

func (s chubbyService) Open(ctx context.Context, q *pb.OpenRequest) (*pb.OpenReply, error) {
	about := &subject{path: q.GetPath()}
	return inSession(s.service, "open", about, q.GetCaller(), func(m *master.Master, who master.Caller) (*pb.OpenReply, error) {
		r, err := s.openRequest(m, who, q)
		if err != nil {
			return nil, err
		}
		about.path, about.named = r.Path.String(), &master.Named{By: who.Session, Path: r.Path}
		o, err := m.Files.Open(ctx, r)
		if err != nil {
			return nil, err
		}
		stat, withheld := statFor(m, r.Handle, o.Created, o.Stat)
		return &pb.OpenReply{
			Handle:    s.signerOf(m).handle(o.Handle),
			HandleId:  uint64(o.Handle.Owner.Handle),
			Created:   o.Created,
			Stat:      stat,
			Cacheable: o.Cacheable && !withheld,
			Reusable:  o.Reusable,
		}, nil
	})
}

func (s *service) openRequest(m *master.Master, who master.Caller, q *pb.OpenRequest) (master.OpenRequest, error) {
	path, directory, err := s.openPath(m, who, q)
	if err != nil {
		return master.OpenRequest{}, err
	}
	mutation, err := mutationOf(who.Session, q.GetMutation(), []byte("open"), []byte(path.String()), q.GetContents(),
		[]byte{byte(q.GetCreate()), byte(q.GetKind()), flag(q.GetEphemeral()), flag(q.GetRead()), flag(q.GetWrite()), flag(q.GetChangeAcl())},
		[]byte(q.GetAcl().GetRead()), []byte(q.GetAcl().GetWrite()), []byte(q.GetAcl().GetChange()))
	if err != nil {
		return master.OpenRequest{}, err
	}
	r := master.OpenRequest{Mutation: mutation, Path: path, Directory: directory, Create: raftfsm.Open{
		Create:    api.Create(q.GetCreate()),
		Kind:      api.Kind(q.GetKind()),
		Ephemeral: q.GetEphemeral(),
		Contents:  q.GetContents(),
		ACL:       aclOf(q.GetAcl()),
	}}
	for right, wanted := range map[namespace.Rights]bool{namespace.ToRead: q.GetRead(), namespace.ToWrite: q.GetWrite(), namespace.ToChange: q.GetChangeAcl()} {
		if wanted {
			r.Handle.Rights |= right
		}
	}
	r.Create.Rights, r.Create.Preconditions = r.Handle.Rights, directory.Preconditions()
	for _, kind := range q.GetEvents() {
		if !api.EventKind(kind).Subscribable() {
			return master.OpenRequest{}, api.Errorf(api.InvalidArgument, "a handle cannot be opened for %v events: they are told to everybody whom they concern", api.EventKind(kind))
		}
		r.Handle.Events = r.Handle.Events.With(api.EventKind(kind))
	}
	r.Handle.Owner = namespace.Owner{Session: who.Session, Handle: api.HandleID(mutation.Number)}
	r.Handle.Delay, r.Handle.CachesLock, r.Handle.NoCache = time.Duration(q.GetLockDelayNs()), q.GetCacheLock(), q.GetNoCache()
	return r, checkOpen(r)
}

// openPath returns the path that an Open names, absolute or relative to a directory's handle (Chubby §2.6), and
// that handle.
func (s *service) openPath(m *master.Master, who master.Caller, q *pb.OpenRequest) (api.Path, master.Handle, error) {
	text := q.GetPath()
	var directory master.Handle
	if len(q.GetDirectory()) > 0 {
		var err error
		if directory, err = s.handleOf(m, who, q.GetDirectory()); err != nil {
			return api.Path{}, directory, err
		}
		if !directory.Directory {
			return api.Path{}, directory, api.Errorf(api.NotDirectory, "the handle that the path is relative to is of a file")
		}
		text = m.Path(directory.Node.Name) + "/" + text
	}
	path, err := s.pathOf(text)
	return path, directory, err
}

func checkOpen(r master.OpenRequest) error {
	c := r.Create
	switch {
	case !c.Create.Valid():
		return api.Errorf(api.InvalidArgument, "create is %d; see the protocol for its values", c.Create)
	case c.Kind != 0 && !c.Kind.Valid():
		return api.Errorf(api.InvalidArgument, "kind is %d; see the protocol for its values", c.Kind)
	case c.Kind == api.Directory && len(c.Contents) > 0:
		return api.Errorf(api.InvalidArgument, "a directory has no contents")
	case r.Handle.Delay < 0 || r.Handle.Delay > api.MaxLockDelay:
		return api.Errorf(api.InvalidArgument, "a lock-delay of %v; it must be between 0 and %v", r.Handle.Delay, api.MaxLockDelay)
	case r.Handle.Events.NeedRead() && r.Handle.Rights&namespace.ToRead == 0:
		return api.Errorf(api.InvalidArgument, "events of contents and children are for handles that may read; ask for read")
	case r.Handle.Rights == 0:
		return api.Errorf(api.InvalidArgument, "the handle is to be for nothing; ask for read, write or change-ACL")
	}
	if err := checkContents(c.Contents); err != nil {
		return err
	}
	return checkACL(c.ACL)
}

// checkACL checks that the names can be files in the directory of ACLs.
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

func (s chubbyService) CloseHandle(ctx context.Context, q *pb.CloseHandleRequest) (*pb.CloseHandleReply, error) {
	const op = "close"
	return onHandle(s.service, op, q, func(m *master.Master, h master.Handle) (*pb.CloseHandleReply, error) {
		mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), []byte(op), q.GetHandle())
		if err != nil {
			return nil, err
		}
		return &pb.CloseHandleReply{}, m.Files.Close(ctx, mutation, h)
	})
}

func statIn(m *master.Master, n *namespace.Node) (described api.Stat, err error) {
	path, err := n.Name.In(m.Cell())
	if err != nil {
		return described, err
	}
	described = n.Stat()
	described.Path = path
	return described, nil
}

// statFor returns what a handle's session may see of its node, and whether something was withheld.
func statFor(m *master.Master, h master.Handle, written bool, is api.Stat) (stat *pb.Stat, withheld bool) {
	told := []api.Stat{is}
	withheld = m.Sessions.Redact(h.Owner.Session, h.Rights, written, told)
	return pb.NewStat(told[0]), withheld
}

func changed(m *master.Master, h master.Handle, result raftfsm.Result, written bool) (*pb.Stat, error) {
	described, err := result.Stat.In(m.Cell())
	if err != nil {
		return nil, err
	}
	stat, _ := statFor(m, h, written, described)
	return stat, nil
}

func (s chubbyService) GetContentsAndStat(ctx context.Context, q *pb.GetContentsAndStatRequest) (*pb.GetContentsAndStatReply, error) {
	return onHandle(s.service, "read", q, func(m *master.Master, h master.Handle) (*pb.GetContentsAndStatReply, error) {
		node, cacheable, err := m.Files.ReadToCache(ctx, h, namespace.ToRead)
		if err != nil {
			return nil, err
		}
		if node.Kind == api.Directory {
			return nil, api.Errorf(api.IsDirectory, "a directory has no contents; list it instead")
		}
		described, err := statIn(m, node)
		return &pb.GetContentsAndStatReply{Contents: node.Contents, Stat: pb.NewStat(described), Cacheable: cacheable}, err
	})
}

func (s chubbyService) GetStat(ctx context.Context, q *pb.GetStatRequest) (*pb.GetStatReply, error) {
	return onHandle(s.service, "stat", q, func(m *master.Master, h master.Handle) (*pb.GetStatReply, error) {
		node, cacheable, err := m.Files.ReadToCache(ctx, h, 0)
		if err != nil {
			return nil, err
		}
		described, err := statIn(m, node)
		if err != nil {
			return nil, err
		}
		stat, withheld := statFor(m, h, false, described)
		return &pb.GetStatReply{Stat: stat, Cacheable: cacheable && !withheld}, nil
	})
}

func (s chubbyService) ReadDir(ctx context.Context, q *pb.ReadDirRequest) (*pb.ReadDirReply, error) {
	return onHandle(s.service, "list", q, func(m *master.Master, h master.Handle) (*pb.ReadDirReply, error) {
		p, err := m.Files.ReadDir(ctx, h, q.GetAfter(), pageSize(q))
		if err != nil {
			return nil, err
		}
		told := make([]api.Stat, len(p.Children))
		for i, node := range p.Children {
			if told[i], err = statIn(m, node); err != nil {
				return nil, err
			}
		}
		withheld := m.Sessions.Redact(h.Owner.Session, 0, false, told)
		reply := &pb.ReadDirReply{More: p.More, Cacheable: p.Cacheable && !withheld}
		for _, s := range told {
			reply.Children = append(reply.Children, pb.NewStat(s))
		}
		return reply, nil
	})
}

func (s chubbyService) SetContents(ctx context.Context, q *pb.SetContentsRequest) (*pb.SetContentsReply, error) {
	const op = "write"
	return onHandle(s.service, op, q, func(m *master.Master, h master.Handle) (*pb.SetContentsReply, error) {
		if err := checkContents(q.GetContents()); err != nil {
			return nil, err
		}
		mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), q.GetContents(), number(q.IfGeneration), []byte(q.GetIfSequencer()))
		if err != nil {
			return nil, err
		}
		preconditions, err := m.Locks.Preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		result, err := m.Files.Change(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{SetContents: &raftfsm.SetContents{
			Mutation:      mutation,
			Node:          h.Node,
			Contents:      q.GetContents(),
			IfContent:     generation(q.IfGeneration),
			Preconditions: preconditions,
		}})
		if err != nil {
			return nil, err
		}
		described, err := changed(m, h, result, true)
		return &pb.SetContentsReply{Stat: described}, err
	})
}

func (s chubbyService) Delete(ctx context.Context, q *pb.DeleteRequest) (*pb.DeleteReply, error) {
	const op = "delete"
	return onHandle(s.service, op, q, func(m *master.Master, h master.Handle) (*pb.DeleteReply, error) {
		mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), []byte(q.GetIfSequencer()))
		if err != nil {
			return nil, err
		}
		preconditions, err := m.Locks.Preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		_, err = m.Files.Change(ctx, h, namespace.ToWrite, mutation, raftfsm.Command{Delete: &raftfsm.Delete{
			Mutation:      mutation,
			Node:          h.Node,
			Handle:        h.Owner.Handle,
			Preconditions: preconditions,
		}})
		return &pb.DeleteReply{}, err
	})
}

func (s chubbyService) SetACL(ctx context.Context, q *pb.SetACLRequest) (*pb.SetACLReply, error) {
	const op = "set ACL"
	return onHandle(s.service, op, q, func(m *master.Master, h master.Handle) (*pb.SetACLReply, error) {
		acl := aclOf(q.GetAcl())
		mutation, err := mutationOf(h.Owner.Session, q.GetMutation(), []byte(op), q.GetHandle(), []byte(acl.Read), []byte(acl.Write), []byte(acl.Change),
			number(q.IfGeneration), []byte(q.GetIfSequencer()))
		if err == nil {
			err = checkACL(acl)
		}
		if err != nil {
			return nil, err
		}
		preconditions, err := m.Locks.Preconditions(h, q.GetIfSequencer())
		if err != nil {
			return nil, err
		}
		result, err := m.Files.Change(ctx, h, namespace.ToChange, mutation, raftfsm.Command{SetACL: &raftfsm.SetACL{
			Mutation:      mutation,
			Node:          h.Node,
			ACL:           acl,
			IfACLs:        generation(q.IfGeneration),
			Preconditions: preconditions,
		}})
		if err != nil {
			return nil, err
		}
		described, err := changed(m, h, result, false)
		return &pb.SetACLReply{Stat: described}, err
	})
}

func aclOf(a *pb.ACL) api.ACL {
	return api.ACL{Read: a.GetRead(), Write: a.GetWrite(), Change: a.GetChange()}
}
