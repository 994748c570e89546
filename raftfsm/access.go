package raftfsm

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// operatorsACL is the name of the list of the cell's operators. It is made when the cell begins, if the
// configuration names any.
const operatorsACL = "operators"

// PermitOperator returns nil if a principal may do what only an operator of the cell may: end the
// sessions of others, break any lock, set quotas, raise the level, restore a backup, look at everything.
// Otherwise it returns a refusal. An operator is whom the list operators admits. Where there is no such list, and below level 3, it is who
// may change the ACL of the root.
func (s *State) PermitOperator(principal string) error {
	if !s.HasOperators() {
		root, _ := s.Tree.Get("")
		return s.Tree.Permit(root, principal, namespace.ToChange)
	}
	//mutant: if principal == "" { //by TestOperators of ./cell
	if !s.Tree.Admits(operatorsACL, principal) {
		return &refusal.Refusal{Cause: refusal.NotOperator, Principal: principal, List: namespace.ACLFile(operatorsACL)}
	}
	return nil
}

// HasOperators reports whether there is a list that says who is an operator, and the level lets it count.
func (s *State) HasOperators() bool {
	_, there := s.Tree.Get(namespace.ACLFile(operatorsACL))
	return there && s.Level >= OperatorsLevel
}

// closeLists closes what a cell without operators leaves to everybody, once it has operators: it follows a write of node, and
// acts if that is the list operators with somebody in it, and the directory of lists is still open. Then the list everyone gives way to the
// list operators in the names of the root, of that directory and of each list, as in a cell that begins with operators
// (bootstrap). Other names stay: somebody chose them. It adds to r what it changed, and returns node as it is then.
func (s *State) closeLists(r *Result, node *namespace.Node) *namespace.Node {
	dir, _ := s.Tree.Get(api.ACLDir)
	if s.Level < OperatorsLevel || node.Name != namespace.ACLFile(operatorsACL) || node.AdmitsNobody() || closed(dir.ACL) == dir.ACL {
		return node
	}
	for _, name := range s.namesClosed() {
		n, _ := s.Tree.Get(name)
		acl := closed(n.ACL)
		if name == "" {
			acl.Write = n.ACL.Write // everybody may go on making directories there
		}
		if acl == n.ACL {
			continue
		}
		if n, err := s.Tree.SetACL(n.Ref(), acl, nil, s.drawGeneration); err == nil { // it cannot fail: the names are short
			r.Changes = append(r.Changes, s.changed(namespace.ACLChanged, n.Ref(), n.ACLs)...)
		}
	}
	node, _ = s.Tree.Get(node.Name)
	return node
}

// closed returns ACL names in which operators have the place of everyone, where that lets one write or change the names.
func closed(acl api.ACL) api.ACL {
	if acl.Write == rootACL {
		acl.Write = operatorsACL
	}
	if acl.Change == rootACL {
		acl.Change = operatorsACL
	}
	return acl
}

// namesClosed returns the nodes whose names closeLists may change.
func (s *State) namesClosed() []api.Name {
	names := []api.Name{"", api.ACLDir}
	for list := range s.Tree.Children(api.ACLDir, "") {
		//mutant: _ = append(names, list.Name)
		names = append(names, list.Name)
	}
	return names
}

// TouchedBeside returns the nodes that a command may change although it does not name them: a write of the list
// operators closes the others (closeLists).
func (s *State) TouchedBeside(c Command) []api.Name {
	operators := namespace.ACLFile(operatorsACL)
	writes := c.Open != nil && c.Open.Name == operators || c.SetContents != nil && c.SetContents.Node.Name == operators ||
		c.Txn != nil && slices.ContainsFunc(c.Txn.Operations, func(o Operation) bool { return o.Name == operators && !o.Delete })
	if !writes {
		return nil
	}
	return s.namesClosed()
}
