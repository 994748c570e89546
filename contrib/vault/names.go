package chubbyvault

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/vault/sdk/physical"
)

// The entry of key a/b/c is the file a/b/_c. So an entry and a directory of the same name have room
// beside each other. A component of a key is escaped, so that it can be one of a path, and so that no
// directory's name begins with the mark of entries; each path stands for one key.
const (
	entryMark = "_"
	escape    = '%'
	noName    = "%" // the directory of a component that is empty: an escape has two digits otherwise
)

// nameOf returns the escaped component of a path for a component of a key. What is escaped is what
// api.ParsePath does not accept, and the escape itself.
func nameOf(part string, directory bool) string {
	if part == "" && directory {
		return noName
	}
	var out strings.Builder
	for i := 0; i < len(part); {
		r, size := utf8.DecodeRuneInString(part[i:])
		if plain(r, size) && !(directory && i == 0 && strings.HasPrefix(part, entryMark)) && !(directory && (part == "." || part == "..")) {
			out.WriteString(part[i : i+size])
		} else {
			for _, one := range []byte(part[i : i+size]) {
				fmt.Fprintf(&out, "%c%02X", escape, one)
			}
		}
		i += size
	}
	return out.String()
}

// plain reports whether a character stands for itself.
func plain(r rune, size int) bool {
	return r != escape && r != '/' && !(r == utf8.RuneError && size == 1) && !unicode.IsControl(r) && !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// partOf undoes nameOf. It reports false for a name that nameOf does not return: nobody but this
// package is to write there.
func partOf(name string, directory bool) (part string, ok bool) {
	if directory && name == noName {
		return "", true
	}
	var out []byte
	for i := 0; i < len(name); i++ {
		if name[i] != escape {
			out = append(out, name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		var one byte
		if _, err := fmt.Sscanf(name[i+1:i+3], "%02X", &one); err != nil {
			return "", false
		}
		out = append(out, one)
		i += 2
	}
	part = string(out)
	return part, nameOf(part, directory) == name
}

// directoryOf returns the path, relative to the data, of the directory whose entries have keys that
// begin with prefix, which is empty or ends with a slash.
func directoryOf(prefix string) string {
	if prefix == "" {
		return ""
	}
	parts := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
	for i, part := range parts {
		parts[i] = nameOf(part, true)
	}
	return strings.Join(parts, "/")
}

// fileOf returns the path, relative to the data, of the entry of a key.
func fileOf(key string) string {
	slash := strings.LastIndexByte(key, '/') + 1
	file := entryMark + nameOf(key[slash:], false)
	if slash == 0 {
		return file
	}
	return directoryOf(key[:slash]) + "/" + file
}

// room checks that a relative path can be one below root.
func room(op, root, relative string) error {
	if _, err := api.ParsePath(root + "/" + relative); err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: op, Path: root, Err: err, Message: fmt.Sprintf(
			"%s: as a path below %s it takes %d bytes in %d components, the longest of %d; "+
				"a path has at most %d bytes, the %d of %s/ included, %d components, also included, and %d bytes in one",
			physical.ErrKeyTooLarge, root, len(relative), strings.Count(relative, "/")+1, longest(relative),
			api.MaxPath, len(root)+1, root, api.MaxDepth, api.MaxComponent)}
	}
	return nil
}

func longest(path string) (most int) {
	for part := range strings.SplitSeq(path, "/") {
		most = max(most, len(part))
	}
	return most
}
