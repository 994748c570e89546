package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

func (s *State) open(c *Open) Result {
	return s.once(c.Mutation, func() Result {
		by := namespace.Owner{Session: c.Mutation.Session, Handle: api.HandleID(c.Mutation.Number)}
		node, created, err := s.openOrCreate(c, by)
		if err != nil {
			return Result{Answer: refusal(err)}
		}
		return Result{Answer: Answer{Created: created, Stat: stat(node)}}
	})
}

func (s *State) openOrCreate(c *Open, by namespace.Owner) (node *namespace.Node, created bool, err error) {
	if node, ok := s.Tree.Get(c.Name); ok {
		if err := Openable(node, c.Create, c.Kind); err != nil {
			return nil, false, err
		}
		node, err = s.Tree.Open(node.Ref(), by)
		return node, false, err
	}
	if c.Create == api.MustExist {
		return nil, false, api.Errorf(api.NotFound, "there is no such node")
	}
	spec := namespace.Spec{Kind: c.Kind, Ephemeral: c.Ephemeral, Contents: c.Contents, ACL: c.ACL}
	if spec.Kind == 0 {
		spec.Kind = api.File
	}
	if c.Ephemeral {
		spec.Opener = by
	}
	// The counter moves on even if the node cannot be created: the same on
	// every replica, and a number is not missed.
	node, err = s.Tree.Create(c.Name, spec, s.drawGeneration())
	return node, err == nil, err
}

// Openable reports why a node that is there cannot be opened as asked; nil if
// it can.
func Openable(node *namespace.Node, create api.Create, kind api.Kind) error {
	switch {
	case node.Dying():
		return api.Errorf(api.Exists, "the ephemeral node is being removed with the session that had it; try again in a moment")
	case create == api.MustCreate:
		return api.Errorf(api.Exists, "the node exists already, as a %v", node.Kind)
	case kind == api.File && node.Kind == api.Directory:
		return api.Errorf(api.IsDirectory, "the node is a directory")
	case kind == api.Directory && node.Kind == api.File:
		return api.Errorf(api.NotDirectory, "the node is a file")
	}
	return nil
}

func (s *State) setContents(c *SetContents) Result {
	return s.once(c.Mutation, func() Result {
		node, err := s.Tree.SetContents(c.Node, c.Contents, c.IfContent)
		if err != nil {
			return Result{Answer: refusal(err)}
		}
		return Result{Answer: Answer{Stat: stat(node)}}
	})
}

func (s *State) delete(c *Delete) Result {
	return s.once(c.Mutation, func() Result {
		if err := s.Tree.Delete(c.Node, namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}); err != nil {
			return Result{Answer: refusal(err)}
		}
		return Result{Removed: []namespace.Ref{c.Node}}
	})
}

// close never fails: what is gone is closed (Chubby §2.6).
func (s *State) close(c *Close, wall int64) Result {
	return s.once(c.Mutation, func() Result {
		dropped, err := s.Tree.Close(c.Node, namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle})
		if err != nil {
			return Result{}
		}
		r := Result{Free: dropped.Free, Delayed: dropped.Delayed, Dying: dropped.Dying}
		if len(r.Free) > 0 {
			r.Claims = s.grant(c.Node, c.Successors, wall)
		}
		return r
	})
}

// remove removes those of the nodes that are still dying.
func (s *State) remove(c *Remove) Result {
	var r Result
	for _, ref := range c.Nodes {
		if s.Tree.Remove(ref) {
			r.Removed = append(r.Removed, ref)
		}
	}
	return r
}
