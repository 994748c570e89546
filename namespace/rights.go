package namespace

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Rights is what a handle may be opened for (Chubby §2.6). A node names a list
// for each right (Chubby §2.3).
type Rights uint8

// The rights.
const (
	ToRead   Rights = 1 << iota // contents, metadata, listings, and events of them
	ToWrite                     // and to lock, in either mode (Chubby §2.4), to delete, and to create in a directory
	ToChange                    // the ACL names, and to take a lock away from its holders
)

// Permit returns PermissionDenied unless the principal has all the wanted
// rights on the node. The refusal names the list that would have to admit the
// principal.
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

// MissingACL returns the first name in acl that is not empty and has no list.
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
