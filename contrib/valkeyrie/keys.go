package chubbykv

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// The value of key a/b/c is the file data/a/b/_c. So a value and a directory of the same name have room
// beside each other. A component of a key is escaped, so that it can be one of a path, and so that no
// directory's name begins with the mark of values; each path stands for one key.
const valueMark = "_"

// entry is a key and where its value is.
type entry struct {
	key   string // as results name it; "" is that of the whole store, which has no value
	below string // the path of the directory with the keys below it, relative to one of the Store's directories
	value string // that of its value, also relative; "" for the whole store
}

// entryOf returns the entry of a key, or why it cannot have one.
func (s *Store) entryOf(op, key string) (entry, error) {
	parts := strings.FieldsFunc(key, func(r rune) bool { return r == '/' })
	e := entry{key: strings.Join(parts, "/")}
	for i, part := range parts {
		e.value = join(e.below, valueMark+url.PathEscape(part))
		e.below = join(e.below, directoryName(part))
		if i == len(parts)-1 {
			break
		}
	}
	for _, relative := range []string{e.value, e.below} {
		if _, err := api.ParsePath(join(s.locks(), relative)); err != nil { // which is longer than data
			return e, &api.Error{Code: api.InvalidArgument, Op: op, Path: s.data(), Err: err, Message: fmt.Sprintf(
				"the key of %d bytes is too long: as a path below %s it may have %d bytes and %d components, those of %s included, and %d bytes in one; "+
					"characters that a path cannot have count three times", len(key), s.locks(), api.MaxPath, api.MaxDepth, s.locks(), api.MaxComponent)}
		}
	}
	return e, nil
}

// valueOf is entryOf for a key that is to have a value.
func (s *Store) valueOf(op, key string) (entry, error) {
	e, err := s.entryOf(op, key)
	if err == nil && e.key == "" {
		err = &api.Error{Code: api.InvalidArgument, Op: op, Path: s.data(), Message: fmt.Sprintf("the key %q is empty; name one", key)}
	}
	return e, err
}

// file returns the path of the file with the value.
func (s *Store) file(e entry) string { return s.data() + "/" + e.value }

// directory returns the path of the directory with the keys below an entry.
func (s *Store) directory(e entry) string { return join(s.data(), e.below) }

// directoryName returns the name of the directory for a component of a key.
func directoryName(part string) string {
	name := url.PathEscape(part)
	switch {
	case part == ".", part == "..":
		return strings.ReplaceAll(name, ".", "%2E")
	case strings.HasPrefix(name, valueMark):
		return "%5F" + name[len(valueMark):]
	}
	return name
}

// partOf returns the component of a key that a node stands for. It reports false for a name that no key
// has: nobody but this package is to write there.
func partOf(name string, kind api.Kind) (part string, ok bool) {
	escaped := name
	if kind == api.File {
		if escaped, ok = strings.CutPrefix(name, valueMark); !ok {
			return "", false
		}
	}
	part, err := url.PathUnescape(escaped)
	if err != nil {
		return "", false
	}
	if kind == api.File {
		return part, valueMark+url.PathEscape(part) == name
	}
	return part, directoryName(part) == name
}

// keyOf returns the key of a file by its path relative to a directory of the data.
func keyOf(relative string) (key string, ok bool) {
	parts := strings.Split(relative, "/")
	for i, name := range parts {
		kind := api.Directory
		if i == len(parts)-1 {
			kind = api.File
		}
		if parts[i], ok = partOf(name, kind); !ok {
			return "", false
		}
	}
	return strings.Join(parts, "/"), true
}

// join puts a slash between two parts, neither of which has to be there.
func join(above, name string) string {
	switch {
	case above == "":
		return name
	case name == "":
		return above
	}
	return above + "/" + name
}
