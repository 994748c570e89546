package raftfsm

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// operatorsACL names the list of the cell's operators. The bootstrap makes it if the configuration names
// operators.
const operatorsACL = "operators"

// PermitOperator returns a refusal unless the principal may act as an operator: end others' sessions, break any
// lock, set quotas, raise the level, restore a backup, see everything. Operators are on the list operators.
// Without that list, and below level 3, principals that may change the root's ACL are operators.
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

// HasOperators reports whether a list of operators exists and the level lets it count.
func (s *State) HasOperators() bool {
	_, there := s.Tree.Get(namespace.ACLFile(operatorsACL))
	return there && s.Level >= OperatorsLevel
}

// closeLists withdraws from everybody what a cell without operators allows, once it has operators. It acts
// after a write of node if that is the list operators, not empty, and the directory of lists is still open.
// Then operators replaces everyone in the ACL names of the root, of that directory and of each list, as after
// bootstrap with operators. Other names stay: a client chose them. It adds the changes to r, and returns the
// changed node.
func (s *State) closeLists(r *Result, node *namespace.Node) *namespace.Node {
	dir, _ := s.Tree.Get(api.ACLDir)
	if s.Level < OperatorsLevel || node.Name != namespace.ACLFile(operatorsACL) || node.AdmitsNobody() || closed(dir.ACL) == dir.ACL {
		return node
	}
	for _, name := range s.namesClosed() {
		n, _ := s.Tree.Get(name)
		acl := closed(n.ACL)
		if name == "" {
			acl.Write = n.ACL.Write // everybody may still make directories there
		}
		if acl == n.ACL {
			continue
		}
		if n, err := s.Tree.SetACL(n.Ref(), acl, nil, s.drawGeneration); err == nil { // cannot fail: the names are short
			r.Changes = append(r.Changes, s.changed(namespace.ACLChanged, n.Ref(), n.ACLs)...)
		}
	}
	node, _ = s.Tree.Get(node.Name)
	return node
}

// closed returns ACL names with operators in place of everyone for writing and changing.
func closed(acl api.ACL) api.ACL {
	if acl.Write == rootACL {
		acl.Write = operatorsACL
	}
	if acl.Change == rootACL {
		acl.Change = operatorsACL
	}
	return acl
}

func (s *State) namesClosed() []api.Name {
	names := []api.Name{"", api.ACLDir}
	for list := range s.Tree.Children(api.ACLDir, "") {
		//mutant: _ = append(names, list.Name)
		names = append(names, list.Name)
	}
	return names
}

// TouchedBeside returns nodes that a command may change without naming them: a write of the list operators
// closes others (closeLists).
func (s *State) TouchedBeside(c Command) []api.Name {
	operators := namespace.ACLFile(operatorsACL)
	writes := c.Open != nil && c.Open.Name == operators || c.SetContents != nil && c.SetContents.Node.Name == operators ||
		c.Txn != nil && slices.ContainsFunc(c.Txn.Operations, func(o Operation) bool { return o.Name == operators && !o.Delete })
	if !writes {
		return nil
	}
	return s.namesClosed()
}
