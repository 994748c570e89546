package namespace

import (
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// nodeKey is a node's key in the tree: its depth, then its name. So a directory's children
// are adjacent and in order, and parents come before their children (Chubby §2.10).
type nodeKey struct {
	depth int
	name  api.Name
}

func keyOf(name api.Name) nodeKey { return nodeKey{depth: name.Depth(), name: name} }

func (k nodeKey) less(other nodeKey) bool {
	if k.depth != other.depth {
		//mutants: same (they differ)
		return k.depth < other.depth
	}
	return k.name < other.name
}

// Mark is a place in the order of Tree.Below: directly after the node that
// returned it. Other packages must not interpret it. It is the depth in one byte, then the
// name; clients keep marks while a replica is upgraded.
type Mark []byte

// mark is the key as a Mark. No node is deeper than api.MaxDepth.
func (k nodeKey) mark() Mark { return append(Mark{byte(k.depth)}, k.name...) }

// key returns false for the empty mark.
func (m Mark) key() (nodeKey, bool) {
	if len(m) == 0 {
		return nodeKey{}, false
	}
	return nodeKey{depth: int(m[0]), name: api.Name(m[1:])}, true
}

// ownedKey is the key of a node in the index by session.
type ownedKey struct {
	session api.SessionID
	name    api.Name
}

func (k ownedKey) less(other ownedKey) bool {
	if k.session != other.session {
		//mutants: same (they differ)
		return k.session < other.session
	}
	return k.name < other.name
}

// CheckName returns InvalidArgument for a text that cannot be the name of a node. Parent, Base and
// Depth have a meaning only for names that it accepts.
func CheckName(name api.Name) error {
	if r := refuseName(name); r != nil {
		return r
	}
	return nil
}

// refuseName returns nil for a valid name.
func refuseName(name api.Name) *refusal.Refusal {
	switch {
	case name == "":
		return nil
	case len(name) > api.MaxPath:
		return &refusal.Refusal{Cause: refusal.NameTooLong, Used: int64(len(name)), Allowed: api.MaxPath}
	case name[0] != '/' || strings.HasSuffix(string(name), "/") || strings.Contains(string(name), "//"):
		return &refusal.Refusal{Cause: refusal.NameMalformed, Name: name}
	case name.Depth() > api.MaxDepth:
		return &refusal.Refusal{Cause: refusal.NameTooDeep, Used: int64(name.Depth()), Allowed: api.MaxDepth}
	}
	return nil
}
