package namespace

import (
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// maxACLFiles bounds the lists that are read to answer one question; what is
// beyond it admits nobody.
const maxACLFiles = 64

// ACLFile returns the name of the file that holds an access control list.
func ACLFile(acl string) api.Name { return api.ACLDir + "/" + api.Name(acl) }

// Admits reports whether an access control list names the principal. The list
// is a file in api.ACLDir. Each line of it is one of
//
//	alice     a principal, to the letter
//	*         anybody, also those without an identity
//	@ops      everybody whom the list ops admits
//	# text    a comment, as is an empty line
//
// A list that is missing, is no file, or includes itself, directly or not,
// admits nobody by that.
func (t Tree) Admits(acl, principal string) bool {
	look := aclLook{tree: t, principal: principal, seen: map[string]bool{}}
	return look.admits(acl)
}

// aclLook is one look into a list and those it includes. A list is read once at
// most: what it did not grant the first time it would not grant the second.
type aclLook struct {
	tree      Tree
	principal string
	seen      map[string]bool
}

func (l aclLook) admits(acl string) bool {
	if acl == "" || l.seen[acl] || len(l.seen) >= maxACLFiles {
		return false
	}
	l.seen[acl] = true
	file, ok := l.tree.Get(ACLFile(acl))
	if !ok || file.list == nil {
		return false
	}
	return file.list.names(l.principal) || slices.ContainsFunc(file.list.includes, l.admits)
}

// SetACL replaces those of a node's ACL names that are not empty; ifACLs, unless
// nil, is the ACL generation it must have, else GenerationMismatch (Chubby
// §2.6). The names take their generation from next, as with SetContents. The other
// errors are HandleClosed and InvalidArgument.
func (t *Tree) SetACL(ref Ref, acl api.ACL, ifACLs *api.Generation, next func() api.Generation) (*Node, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case max(len(acl.Read), len(acl.Write), len(acl.Change)) > api.MaxACLName:
		return nil, aclNameTooLong()
	case ifACLs != nil && *ifACLs != n.ACLs:
		return nil, &refusal.Refusal{Cause: refusal.NamesOfACLsChanged, Current: n.ACLs, Generation: *ifACLs}
	}
	renamed := *n
	renamed.ACL = inherit(acl, n.ACL)
	if renamed.ACLs, err = newer(n.ACLs, next); err != nil {
		return nil, err
	}
	t.replace(n, &renamed, 0)
	return &renamed, nil
}
