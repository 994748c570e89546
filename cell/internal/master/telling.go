package master

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

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
