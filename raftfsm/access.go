package raftfsm

import (
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
	if !s.hasOperators() {
		root, _ := s.Tree.Get("")
		return s.Tree.Permit(root, principal, namespace.ToChange)
	}
	if !s.Tree.Admits(operatorsACL, principal) {
		return &refusal.Refusal{Cause: refusal.NotOperator, Principal: principal, List: namespace.ACLFile(operatorsACL)}
	}
	return nil
}

// hasOperators reports whether there is a list that says who is an operator, and the level lets it count.
func (s *State) hasOperators() bool {
	_, there := s.Tree.Get(namespace.ACLFile(operatorsACL))
	return there && s.Level >= OperatorsLevel
}

// restoreAccess restores access to a cell whose ACLs admit no client. It makes
// the list everyone admit everybody again, and makes the root directory, the
// directory of lists and each list in it name everyone. Every other node keeps
// its names: all rights depend on lists, and everybody may write the lists
// again. It reports no changes, because clients drop their caches when an epoch
// begins.
func (s *State) restoreAccess(wall int64) {
	s.bootstrap(nil, wall) // creates again what was deleted
	open := api.ACL{Read: rootACL, Write: rootACL, Change: rootACL}
	names := []api.Name{"", api.ACLDir}
	for list := range s.Tree.Children(api.ACLDir, "") {
		names = append(names, list.Name)
	}
	for _, name := range names {
		if n, there := s.Tree.Get(name); there && n.ACL != open {
			_, _ = s.Tree.SetACL(n.Ref(), open, nil, s.drawGeneration) // cannot fail: the node exists, and the names are short
		}
	}
	if n, there := s.Tree.Get(namespace.ACLFile(rootACL)); there && string(n.Contents) != everybody {
		_, _ = s.Tree.SetContents(n.Ref(), namespace.Write{Contents: []byte(everybody), ModifiedUnix: s.modifiedUnix(wall)}, s.drawGeneration) // cannot fail: it exists, and is a file
	}
}

// everybody is the contents of a list that admits everybody.
const everybody = "*\n"
