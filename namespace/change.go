package namespace

import "github.com/chubbylock/chubby/api"

// Change is one change of what clients see of a node.
type Change struct {
	Kind       ChangeKind
	Node       Ref
	Parent     Ref
	Generation api.Generation // of the contents or ACL names that were written, or the instance
}

// ChangeKind is a way in which a node can change.
type ChangeKind uint8

// The kinds of change.
const (
	Added      ChangeKind = 1
	Removed    ChangeKind = 2
	Written    ChangeKind = 3 // its contents
	ACLChanged ChangeKind = 4 // its ACL names
)
