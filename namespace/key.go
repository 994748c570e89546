package namespace

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// key is a node's key in the tree: its depth in one byte, then its name. So a
// directory's children are adjacent and in order, and parents come before their
// children (Chubby §2.10). All names deeper than api.MaxDepth get one depth, at
// which there are no nodes.
//
// The radix trees keep parts of the keys that are inserted into them, so each
// insertion needs a key of its own.
func key(name api.Name) []byte { return appendKey(make([]byte, 0, 1+len(name)), name) }

func appendKey(buf []byte, name api.Name) []byte {
	buf = append(buf, byte(min(name.Depth(), api.MaxDepth+1)))
	return append(buf, name...)
}

// childrenKey is the common prefix of the keys of a directory's children.
func childrenKey(name api.Name) []byte {
	buf := make([]byte, 0, len(name)+2)
	buf = append(buf, byte(min(name.Depth()+1, api.MaxDepth+1)))
	buf = append(buf, name...)
	return append(buf, '/')
}

// Mark is a place in the order of Tree.Below: directly after the node that
// returned it. Other packages must not interpret it.
type Mark []byte

// ownedKey is the key of a node in the index by session: the session,
// big-endian, then the name. The session is in hexadecimal: with raw bytes the
// radix tree would have nodes of 256 edges, and each change copies the nodes on
// its way.
func ownedKey(session api.SessionID, name api.Name) []byte {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(session))
	buf := hex.AppendEncode(make([]byte, 0, sessionBytes+len(name)), number[:])
	return append(buf, name...)
}

const sessionBytes = 2 * 8 // of an owned key, before the name

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
