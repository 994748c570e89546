package raftfsm

import (
	"slices"
	"strings"

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

// newEpoch begins an epoch. Each begins only once, because its master numbers grants, events and tickets from
// 1.
func (s *State) newEpoch(epoch api.Epoch, c *NewEpoch, wall int64) Result {
	if epoch <= s.Epoch {
		return refuse(&refusal.Refusal{Cause: refusal.EpochBegun, Epoch: epoch, CurrentEpoch: s.Epoch})
	}
	if s.Cell == "" {
		s.Cell, s.CellID, s.Secret, s.Level = c.Cell, c.CellID, c.Secret, max(c.Level, 1)
		s.bootstrap(c.Operators, wall)
	}
	if c.RestoreAccess {
		s.restoreAccess(wall)
	}
	//mutant: s.Epoch, s.Level = epoch, max(s.Level, c.Level)
	s.Epoch = epoch
	return Result{}
}

// bootstrap creates the directory of ACLs, and the list that admits everybody. With operators, it also creates
// their list, and lets only them change the lists and the root's ACL.
func (s *State) bootstrap(operators []string, wall int64) {
	var acl api.ACL // empty names inherit the parent's
	if len(operators) > 0 {
		acl = api.ACL{Write: operatorsACL, Change: operatorsACL}
		root, _ := s.Tree.Get("")
		//mutant: _, _ = s.Tree.SetACL(root.Ref(), api.ACL{}, nil, s.drawGeneration) //by TestOperators of ./cell
		_, _ = s.Tree.SetACL(root.Ref(), api.ACL{Change: operatorsACL}, nil, s.drawGeneration) // cannot fail: the name is short
	}
	for _, spec := range []struct {
		name api.Name
		namespace.Spec
		wanted bool
	}{
		{api.ACLDir, namespace.Spec{Kind: api.Directory, ACL: acl}, true},
		{namespace.ACLFile(rootACL), namespace.Spec{Kind: api.File, Contents: []byte(everybody)}, true},
		{namespace.ACLFile(operatorsACL), namespace.Spec{Kind: api.File, Contents: []byte(strings.Join(operators, "\n") + "\n")}, len(operators) > 0},
	} {
		if spec.wanted {
			spec.ModifiedUnix = s.modifiedUnix(wall)
			_, _ = s.Tree.Create(spec.name, spec.Spec, s.drawGeneration()) // an existing node stays as it is
		}
	}
}

// restoreAccess restores access to a cell whose ACLs admit no client. The list everyone admits everybody again;
// the root, the directory of lists and each list name everyone. Other nodes keep their names, since everybody
// may write the lists again. It reports no changes: clients drop their caches when an epoch begins.
func (s *State) restoreAccess(wall int64) {
	s.bootstrap(nil, wall) // creates again what was deleted
	open := api.ACL{Read: rootACL, Write: rootACL, Change: rootACL}
	for _, name := range s.namesClosed() {
		if n, there := s.Tree.Get(name); there && n.ACL != open {
			_, _ = s.Tree.SetACL(n.Ref(), open, nil, s.drawGeneration) // cannot fail: the node exists, and the names are short
		}
	}
	if n, there := s.Tree.Get(namespace.ACLFile(rootACL)); there && string(n.Contents) != everybody {
		_, _ = s.Tree.SetContents(n.Ref(), namespace.Write{Contents: []byte(everybody), ModifiedUnix: s.modifiedUnix(wall)}, s.drawGeneration) // cannot fail: it exists, and is a file
	}
}

const everybody = "*\n"
