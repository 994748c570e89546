package chubbystorage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// Names of nodes below Config.Path, and below the directory of a key. None of those that
// end in chunkSuffix is that of a key: after a "%" of encode come two digits.
const (
	keysDir     = "keys"
	locksDir    = "locks"
	chunkSuffix = "%c"   // of the directory with the chunks of the key that is named before it
	writerLock  = "lock" // in that directory; the other nodes there are the sets of chunks
	cutMark     = "%."   // in the name of a lock that was too long, before its hash
	cutAt       = 150    // bytes of it that are kept
	hexDigits   = "0123456789ABCDEF"
)

// encode returns the name of the node of a component, one to one.
func encode(component string) string {
	var b strings.Builder
	for i := range len(component) {
		c := component[i]
		dots := c == '.' && (component == "." || component == "..")
		if c < ' ' || c > '~' || c == '%' || c == '/' || dots {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// decode returns the component of a node's name; ok is false for the name of a node that is
// none of a key.
func decode(name string) (component string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		high, low := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), encode(b.String()) == name
}

// pathOf returns the path of a key's node.
func (s *Storage) pathOf(op, key string) (string, error) {
	var b strings.Builder
	b.WriteString(s.root.String() + "/" + keysDir)
	for component := range strings.SplitSeq(key, "/") {
		if component == "" {
			return "", &api.Error{Code: api.InvalidArgument, Op: op, Path: s.root.String(),
				Message: fmt.Sprintf("the key %q is empty or has an empty component; write one slash between components and none at its ends", key)}
		}
		b.WriteString("/" + encode(component))
	}
	return b.String(), nil
}

// prefixOf returns the path of a key's node; the empty key is the prefix of all.
func (s *Storage) prefixOf(op, key string) (string, error) {
	if key == "" {
		return s.root.String() + "/" + keysDir, nil
	}
	return s.pathOf(op, key)
}

// lockPath returns the path of the lock of that name. A name that is too long for a
// component is cut, and its hash tells it from others.
func (s *Storage) lockPath(name string) string {
	component := encode(name)
	if name == "" {
		component = cutMark
	}
	if len(component) > api.MaxComponent {
		sum := sha256.Sum256([]byte(name))
		component = component[:cutAt] + cutMark + hex.EncodeToString(sum[:])
	}
	return s.root.String() + "/" + locksDir + "/" + component
}
