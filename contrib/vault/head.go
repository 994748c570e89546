package chubbyvault

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// An entry's file says its whole value, or where the chunks of the value are. So a value changes in one
// write of that file.
const (
	inlineKind  = 'v' // the value follows
	chunkedKind = 'c' // the id of the chunks and the size of the value follow
	maxInline   = api.MaxContents - 1
)

// head is what an entry's file says.
type head struct {
	value []byte // unless there are chunks
	id    string // of the chunks; empty if there are none
	size  int    // of the value in chunks
}

// chunks returns how many chunks there are.
func (h head) chunks() int { return (h.size + api.MaxContents - 1) / api.MaxContents }

func (h head) encode() []byte {
	if h.id == "" {
		return append([]byte{inlineKind}, h.value...)
	}
	return fmt.Appendf(nil, "%c %s %d", chunkedKind, h.id, h.size)
}

func decodeHead(contents []byte, path string) (head, error) {
	bad := func(what string) (head, error) {
		return head{}, &api.Error{Code: api.Corrupt, Op: "read", Path: path, Message: "the file of an entry " + what + "; did another program write it?"}
	}
	if len(contents) == 0 {
		return bad("is empty")
	}
	switch contents[0] {
	case inlineKind:
		return head{value: contents[1:]}, nil
	case chunkedKind:
		var h head
		if n, err := fmt.Sscanf(string(contents[1:]), "%s %d", &h.id, &h.size); n != 2 || err != nil || !validID(h.id) || h.size <= maxInline || h.size > MaxValue {
			return bad("does not say where its chunks are")
		}
		return h, nil
	}
	return bad(fmt.Sprintf("begins with %q, which this version does not know", contents[0]))
}

// idLength is that of the id of a value in chunks: 128 random bits in hexadecimal digits, so that no two
// values ever have the same.
const idLength = 32

func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}
