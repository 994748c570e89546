package raftfsm

import (
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

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
