package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

func (s *State) open(c *Open, wall int64) Result {
	return s.once(c.Mutation, c.Preconditions, func() Result {
		by := namespace.Owner{Session: c.Mutation.Session, Handle: api.HandleID(c.Mutation.Number)}
		node, created, err := s.openOrCreate(c, by, wall)
		if err != nil {
			return refuse(err)
		}
		var r Result
		if created {
			r.Changes = s.changed(namespace.Added, node.Ref(), node.Instance)
			node = s.closeLists(&r, node)
		}
		r.Answer = Answer{Created: created, Stat: stat(node)}
		return r
	})
}

func (s *State) openOrCreate(c *Open, by namespace.Owner, wall int64) (node *namespace.Node, created bool, err error) {
	if node, ok := s.Tree.Get(c.Name); ok {
		if err := s.CheckOpen(by.Session, node, c); err != nil {
			return nil, false, err
		}
		if node.Ephemeral {
			err = s.mayOwn()
		}
		if err == nil {
			node, err = s.Tree.Open(node.Ref(), by)
		}
		return node, false, err
	}
	if c.Create == api.MustExist {
		return nil, false, &refusal.Refusal{Cause: refusal.NodeUnknown}
	}
	principal := s.principal(by.Session)
	if err := s.checkCreate(c, principal); err != nil {
		return nil, false, err
	}
	spec := namespace.Spec{
		Kind:         c.Kind,
		Ephemeral:    c.Ephemeral,
		Contents:     c.Contents,
		ACL:          c.ACL,
		Creator:      principal,
		ModifiedUnix: s.modifiedUnix(wall),
	}
	if spec.Kind == 0 {
		spec.Kind = api.File
	}
	if c.Ephemeral {
		if err := s.mayOwn(); err != nil {
			return nil, false, err
		}
		spec.Opener = by
	}
	// The counter advances even if the creation fails, on every replica alike; a gap is harmless.
	node, err = s.Tree.Create(c.Name, spec, s.drawGeneration())
	return node, err == nil, err
}

// checkCreate returns why a principal cannot create a node. It needs the right to write the directory, existing
// lists, and room.
func (s *State) checkCreate(c *Open, principal string) error {
	if err := namespace.CheckName(c.Name); err != nil {
		return err // a name without a parent has no ACL to check
	}
	if err := s.checkPlace(c); err != nil {
		return err
	}
	if parent, ok := s.Tree.Get(c.Name.Parent()); ok && c.Name != "" {
		//mutant: if err := s.Tree.Permit(parent, principal, 0); err != nil { //by TestAPI of ./e2e
		if err := s.Tree.Permit(parent, principal, namespace.ToWrite); err != nil {
			return err
		}
	}
	if name, missing := s.Tree.MissingACL(c.ACL); missing {
		return noSuchACL(name)
	}
	return s.checkQuota(c.Name, principal, namespace.Usage{Nodes: 1, Bytes: int64(len(c.Contents))})
}

// checkPlace allows only access control lists in the directory of lists, and no file in that directory's place.
// A list must always be writable, and must outlive a session (see restoreAccess).
func (s *State) checkPlace(c *Open) error {
	switch {
	case c.Name == api.ACLDir && (c.Kind != api.Directory || c.Ephemeral):
		return &refusal.Refusal{Cause: refusal.ACLDirectoryKind}
	case c.Name.Parent() == api.ACLDir && (c.Kind == api.Directory || c.Ephemeral):
		return &refusal.Refusal{Cause: refusal.ACLFileKind}
	}
	return nil
}

// noSuchACL refuses an ACL name without a list, which would lock out all clients.
func noSuchACL(name string) error {
	return &refusal.Refusal{Cause: refusal.ACLUnknown, List: namespace.ACLFile(name)}
}

// CheckOpen returns why a session cannot open an existing node as asked.
func (s *State) CheckOpen(id api.SessionID, node *namespace.Node, c *Open) error {
	if err := checkExisting(node, c.Create, c.Kind); err != nil {
		return err
	}
	return s.Tree.Permit(node, s.principal(id), c.Rights)
}

func checkExisting(node *namespace.Node, create api.Create, kind api.Kind) error {
	switch {
	case node.Dying():
		return &refusal.Refusal{Cause: refusal.NodeDyingElsewhere}
	case create == api.MustCreate:
		return &refusal.Refusal{Cause: refusal.NodeExists, Kind: node.Kind}
	case kind == api.File && node.Kind == api.Directory:
		return &refusal.Refusal{Cause: refusal.NodeIsDirectory}
	case kind == api.Directory && node.Kind == api.File:
		return &refusal.Refusal{Cause: refusal.NodeIsFile}
	}
	return nil
}

func (s *State) setContents(c *SetContents, wall int64) Result {
	return s.once(c.Mutation, c.Preconditions, func() Result {
		node, err := s.write(c.Node, c.Contents, c.IfContent, wall)
		if err != nil {
			return refuse(err)
		}
		r := Result{Changes: s.changed(namespace.Written, c.Node, node.Content)}
		r.Answer = Answer{Stat: stat(s.closeLists(&r, node))}
		return r
	})
}

// write replaces a file's contents, if there is room and the file is at the generation ifContent (nil: any).
func (s *State) write(file namespace.Ref, contents []byte, ifContent *api.Generation, wall int64) (*namespace.Node, error) {
	node, err := s.Tree.Resolve(file)
	if err == nil {
		err = s.checkQuota(file.Name, node.Creator, namespace.Usage{Bytes: int64(len(contents) - len(node.Contents))})
	}
	if err != nil {
		return nil, err
	}
	//mutant: return s.Tree.SetContents(file, namespace.Write{Contents: contents, IfContent: ifContent, ModifiedUnix: s.modifiedUnix(wall)}, func() api.Generation { return node.Content + 1 })
	return s.Tree.SetContents(file, namespace.Write{Contents: contents, IfContent: ifContent, ModifiedUnix: s.modifiedUnix(wall)}, s.drawGeneration)
}

func (s *State) setACL(c *SetACL) Result {
	return s.once(c.Mutation, c.Preconditions, func() Result {
		if name, missing := s.Tree.MissingACL(c.ACL); missing {
			return refuse(noSuchACL(name))
		}
		node, err := s.Tree.SetACL(c.Node, c.ACL, c.IfACLs, s.drawGeneration)
		if err != nil {
			return refuse(err)
		}
		return Result{Answer: Answer{Stat: stat(node)}, Changes: s.changed(namespace.ACLChanged, c.Node, node.ACLs)}
	})
}

// changed describes one change of a node, which may be gone, and its directory.
func (s *State) changed(kind namespace.ChangeKind, node namespace.Ref, generation api.Generation) []namespace.Change {
	c := namespace.Change{Kind: kind, Node: node, Generation: generation}
	if parent, ok := s.Tree.Get(node.Name.Parent()); ok && node.Name != "" {
		c.Parent = parent.Ref()
	}
	return []namespace.Change{c}
}

// removed adds a node's removal to r, and forgets its past. Without its last child, a dying directory can be
// removed.
func (s *State) removed(r *Result, was *namespace.Node) {
	s.past.forget(placeOf(was))
	node := was.Ref()
	r.Changes = append(r.Changes, s.changed(namespace.Removed, node, node.Instance)...)
	if parent, ok := s.Tree.Get(node.Name.Parent()); ok && parent.Dying() && parent.Children == 0 {
		r.Dying = append(r.Dying, parent.Ref())
	}
}

func (s *State) delete(c *Delete) Result {
	return s.once(c.Mutation, c.Preconditions, func() Result {
		node, _ := s.Tree.Get(c.Node.Name) // which Delete checks
		if err := s.Tree.Delete(c.Node, namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}); err != nil {
			return refuse(err)
		}
		var r Result
		s.removed(&r, node)
		return r
	})
}

// close never fails: if the node is gone, the handle is closed (Chubby §2.6).
func (s *State) close(c *Close, wall int64) Result {
	return s.once(c.Mutation, nil, func() Result {
		dropped, err := s.Tree.Close(c.Node, namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle})
		if err != nil {
			return Result{}
		}
		return s.letGo(dropped, api.ByClose, c.Successions, wall)
	})
}

func (s *State) remove(c *Remove) Result {
	var r Result
	for _, ref := range c.Nodes {
		if node, _ := s.Tree.Get(ref.Name); s.Tree.Remove(ref) {
			s.removed(&r, node)
		}
	}
	return r
}
