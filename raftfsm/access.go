package raftfsm

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// restoreAccess is the way back for a cell whose ACLs admit nobody any more. The
// list everyone admits everybody again, and the root directory, the directory of
// lists and each list in it name everyone. Every other node keeps its names: all
// rights depend on lists, and everybody may write those again. Nothing that
// clients may have cached survives the beginning of an epoch, so no change is to be
// told of.
func (s *State) restoreAccess(wall int64) {
	s.bootstrap(wall) // what was deleted
	open := api.ACL{Read: rootACL, Write: rootACL, Change: rootACL}
	names := []api.Name{"", api.ACLDir}
	for list := range s.Tree.Children(api.ACLDir, "") {
		names = append(names, list.Name)
	}
	for _, name := range names {
		if n, there := s.Tree.Get(name); there && n.ACL != open {
			_, _ = s.Tree.SetACL(n.Ref(), open, nil, s.drawGeneration) // it is there, and the names are short
		}
	}
	if n, there := s.Tree.Get(namespace.ACLFile(rootACL)); there && string(n.Contents) != everybody {
		_, _ = s.Tree.SetContents(n.Ref(), namespace.Write{Contents: []byte(everybody), ModifiedUnix: s.modifiedUnix(wall)}, s.drawGeneration) // it is there, and a file
	}
}

// everybody is a list that admits everybody.
const everybody = "*\n"
