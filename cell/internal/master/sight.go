package master

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// For returns an Inspector that tells a principal what it may see: the locks of nodes that it may read, or might read if they were
// there; its own sessions and quotas; and everything, if it is an operator. "" sees everything: nobody is asked
// who he is.
func (in *Inspector) For(principal string) *Inspector {
	view := *in
	view.viewer = principal
	return &view
}

// sight is what a principal may see of a state.
type sight struct {
	tree      namespace.Tree
	principal string
	all       bool
}

func (in *Inspector) sightOf(state *raftfsm.State) sight {
	all := in.viewer == "" || state.PermitOperator(in.viewer) == nil
	return sight{tree: state.Tree, principal: in.viewer, all: all}
}

// sees reports whether what a principal has may be seen.
func (s sight) sees(owner string) bool { return s.all || owner == s.principal }

// reads reports whether what there is at a name may be seen, or would be: where there is no node, the nearest
// above it decides.
func (s sight) reads(name api.Name) bool {
	if s.all {
		return true
	}
	for {
		if node, ok := s.tree.Get(name); ok {
			return s.tree.Permit(node, s.principal, namespace.ToRead) == nil
		}
		if name == "" {
			return false
		}
		name = name.Parent()
	}
}

// refuse is the answer about a name that may not be seen. It does not say whether there is anything.
func (s sight) refuse(path string) error {
	return &api.Error{
		Code: api.PermissionDenied, Path: path,
		Message: fmt.Sprintf("%s may not look at it: that takes the right to read it, or to change the access control list of the root", s.principal),
	}
}
