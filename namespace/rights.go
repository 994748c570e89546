package namespace

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Rights is what a handle may be opened for (Chubby §2.6); each right is granted
// by the list of its own that a node names (Chubby §2.3).
type Rights uint8

// The rights.
const (
	ToRead   Rights = 1 << iota // contents, metadata, listings, and events of them
	ToWrite                     // and to lock, in either mode (Chubby §2.4), to delete, and to create in a directory
	ToChange                    // the names of the ACLs, and to take a lock away from its holders
)

// Permit returns PermissionDenied, with the list that would have to name the
// principal, unless it has all of those rights on the node.
func (t Tree) Permit(n *Node, principal string, wanted Rights) error {
	for _, right := range []struct {
		bit   Rights
		list  string
		cause refusal.Cause
	}{{ToRead, n.ACL.Read, refusal.NotAdmittedToRead}, {ToWrite, n.ACL.Write, refusal.NotAdmittedToWrite}, {ToChange, n.ACL.Change, refusal.NotAdmittedToChange}} {
		if wanted&right.bit != 0 && !t.Admits(right.list, principal) {
			return &refusal.Refusal{Cause: right.cause, Principal: principal, List: ACLFile(right.list), Name: n.Name, Kind: n.Kind}
		}
	}
	return nil
}

// MissingACL returns the first of the names that is not empty and of which there
// is no list.
func (t Tree) MissingACL(acl api.ACL) (string, bool) {
	for _, name := range []string{acl.Read, acl.Write, acl.Change} {
		if name == "" {
			continue
		}
		if file, ok := t.Get(ACLFile(name)); !ok || file.Kind != api.File {
			return name, true
		}
	}
	return "", false
}
