package master

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// For returns an Inspector that shows a principal what it may see: locks of nodes it may read, or could if
// they existed; its own sessions and quotas; everything, for operators. "" sees everything, without
// authentication.
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

// Named is a path that a session has named.
type Named struct {
	By   api.SessionID
	Path api.Path
}

// Withhold returns the error that a session gets about a path it named. Without rights there, all refusals
// are the same, with or without a node. A right to a directory shows all errors in it.
func (in *Inspector) Withhold(n Named, err error) error {
	if !saysWhatIsAt(n.Path.Name(), err) {
		return err
	}
	state, principal := in.epoch.state(), in.epoch.principal(n.By)
	if mayKnow(state, principal, n.Path.Name()) {
		return err
	}
	final := false
	if e := (*api.Error)(nil); errors.As(err, &e) {
		final = e.Final
	}
	return &api.Error{
		Code: api.PermissionDenied, Path: n.Path.String(), Final: final,
		Message: fmt.Sprintf("%q has no right here, neither to this node, if there is one, nor to the directory that it is or would be in: ask who administers the cell to name you in a list that gives one (chubbyctl acl get shows the lists of a node to those who may read it, and acl file put changes one)", principal),
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

// State returns the replicated state of this replica, without a proof of leadership.
func (m *Master) State() *raftfsm.State { return m.epoch.state() }

// Redact removes from descriptions of nodes what a session may not see, and reports whether it did. A session
// sees all of a node that its principal may read, or that its handle was opened to read. Otherwise it sees
// name and kind; the access control lists, if its handle may change them; and generation, length, checksum
// and time of contents it has just written. Operators see no more. handle has the handle's rights.
func (s *Sessions) Redact(id api.SessionID, handle namespace.Rights, written bool, nodes []api.Stat) (withheld bool) {
	if handle&namespace.ToRead != 0 {
		return false
	}
	tree, principal := s.epoch.state().Tree, s.epoch.principal(id)
	admitted := map[string]bool{} // by list: most nodes of a directory name the same
	for i, n := range nodes {
		may, asked := admitted[n.ACL.Read]
		if !asked {
			may = tree.Admits(n.ACL.Read, principal)
			admitted[n.ACL.Read] = may
		}
		if !may {
			nodes[i], withheld = outline(n, handle, written), true
		}
	}
	return withheld
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
