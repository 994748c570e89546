package master

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// sight is what a principal may see of a state.
type sight struct {
	tree      namespace.Tree
	principal string
	all       bool
}

// sees reports whether the principal may see what belongs to owner.
func (s sight) sees(owner string) bool { return s.all || owner == s.principal }

// nearest returns the node of a name, or else its nearest ancestor that exists, or nil.
func (s sight) nearest(name api.Name) *namespace.Node {
	node, there := s.tree.Get(name)
	for ; !there && name != ""; node, there = s.tree.Get(name) {
		name = name.Parent()
	}
	return node
}

// has reports whether the principal has one of some rights to a node, which may be nil.
func (s sight) has(node *namespace.Node, rights ...namespace.Rights) bool {
	return node != nil && slices.ContainsFunc(rights, func(r namespace.Rights) bool { return s.tree.Permit(node, s.principal, r) == nil })
}

// reads reports whether the principal may read a name. Without a node there, the nearest ancestor decides.
func (s sight) reads(name api.Name) bool { return s.all || s.has(s.nearest(name), namespace.ToRead) }

// looks reports whether the principal may read or lock a name, by the same rule.
func (s sight) looks(name api.Name) bool {
	return s.has(s.nearest(name), namespace.ToRead, namespace.ToWrite)
}

// refuse returns the error for an invisible name. It does not say whether there is a node.
func (s sight) refuse(path string) error {
	return &api.Error{
		Code: api.PermissionDenied, Path: path,
		Message: fmt.Sprintf("%s may not look at it: that takes the right to read it, or to be an operator of the cell (/ls/CELL/acl/operators)", s.principal),
	}
}

// saysWhatIsAt reports whether an error may depend on what is at a name.
func saysWhatIsAt(name api.Name, err error) bool {
	switch code := api.CodeOf(err); code {
	case api.Cancelled, api.HandleClosed, api.QuotaExceeded:
		return false
	case api.InvalidArgument: // among the access control lists, some ways to create depend on what exists
		return name == api.ACLDir || name.Parent() == api.ACLDir
	default:
		return refusal.IsFinal(code)
	}
}

// mayKnow is knows, and true for operators.
func mayKnow(state *raftfsm.State, principal string, name api.Name) bool {
	return state.PermitOperator(principal) == nil || (sight{tree: state.Tree, principal: principal}).knows(name)
}

// knows reports whether a principal may know that a node exists: it has a right to the node, or to the
// nearest existing ancestor. The root always exists.
func (s sight) knows(name api.Name) bool {
	rights := []namespace.Rights{namespace.ToRead, namespace.ToWrite, namespace.ToChange}
	node, _ := s.tree.Get(name)
	return name == "" || s.has(node, rights...) || s.has(s.nearest(name.Parent()), rights...)
}

// mayKeep reports whether a session may cache a node through a handle: it must see all of the node.
func (e *epoch) mayKeep(h Handle, name api.Name) bool {
	if h.NoCache || h.Rights&namespace.ToRead != 0 {
		return !h.NoCache
	}
	tree := e.state().Tree
	node, there := tree.Get(name)
	return there && tree.Permit(node, e.principal(h.Owner.Session), namespace.ToRead) == nil
}

// outline returns what a session sees of a node that it may not read.
func outline(s api.Stat, handle namespace.Rights, written bool) api.Stat {
	told := api.Stat{Path: s.Path, Kind: s.Kind, Ephemeral: s.Ephemeral, Withheld: true}
	if handle&namespace.ToChange != 0 {
		told.ACL, told.ACLs = s.ACL, s.ACLs
	}
	if written {
		told.Content, told.Size, told.Checksum, told.ModifiedUnix = s.Content, s.Size, s.Checksum, s.ModifiedUnix
		if s.Content == s.Instance {
			told.Instance = s.Instance // it has created the node
		}
	}
	return told
}

// within reports whether name is prefix or below it.
func within(name, prefix api.Name) bool {
	rest, ok := strings.CutPrefix(string(name), string(prefix))
	return ok && (rest == "" || rest[0] == '/')
}
