package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Root is the first component of every path (Chubby §2.3); it stands for "lock service".
const Root = "ls"

// LocalCell is the cell that a path names as "local": the default one.
const LocalCell = "local"

// ACLDir is the directory of a cell whose files are its access control lists
// (Chubby §2.3).
const ACLDir Name = "/acl"

// Path is a validated, canonical path: /ls/<cell> and at most MaxDepth
// components. Two paths are the same node exactly if they are the same bytes.
// The zero Path is not a path.
type Path struct {
	text string // the whole, "/ls/foo/a/b"
	cell int    // where the cell's name ends in text
}

// ParsePath validates text against the grammar
//
//	path      = "/ls/" cell { "/" component }
//
// where cell and components are 1 to MaxComponent bytes of UTF-8 without
// slashes, control characters, invisible formatting characters (Unicode Cf) or
// line separators, and are not "." or "..". A cell's name is further kept to
// letters, digits, '-', '_' and '.', because it is looked up in DNS.
func ParsePath(text string) (Path, error) {
	bad := func(format string, args ...any) (Path, error) {
		return Path{}, &Error{Code: InvalidPath, Path: clip(text), Message: fmt.Sprintf(format, args...)}
	}
	if len(text) > MaxPath {
		return bad("the path is %d bytes long; at most %d are allowed", len(text), MaxPath)
	}
	if !utf8.ValidString(text) {
		return bad("the path is not valid UTF-8")
	}
	rest, ok := strings.CutPrefix(text, "/"+Root+"/")
	if !ok {
		return bad("a path begins with /%s/<cell>, as in /%s/%s/my/lock", Root, Root, LocalCell)
	}
	parts := strings.Split(rest, "/")
	if len(parts)-1 > MaxDepth {
		return bad("the path has %d components below its cell; at most %d are allowed", len(parts)-1, MaxDepth)
	}
	for i, part := range parts {
		if fault := componentProblem(part); fault != "" {
			return bad("component %d (%q) %s", i+1, clip(part), fault)
		}
	}
	if !ValidCell(parts[0]) {
		return bad("the cell's name %q may hold letters, digits, '-', '_' and '.' only", parts[0])
	}
	return Path{text: text, cell: len("/"+Root+"/") + len(parts[0])}, nil
}

// MustParsePath is ParsePath for paths that are constants of a program; it
// panics on a bad one.
func MustParsePath(text string) Path {
	p, err := ParsePath(text)
	if err != nil {
		panic(err)
	}
	return p
}

// ValidCell reports whether name can be a cell's name.
func ValidCell(name string) bool {
	if componentProblem(name) != "" {
		return false
	}
	for _, r := range name {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && !('0' <= r && r <= '9') && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}

func componentProblem(part string) string {
	switch {
	case part == "":
		return "is empty; write one slash between components and none at the end"
	case part == "." || part == "..":
		return "is relative; Chubby has no relative paths"
	case len(part) > MaxComponent:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(part), MaxComponent)
	}
	for _, r := range part {
		if unicode.IsControl(r) || r > unicode.MaxASCII && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return fmt.Sprintf("holds the control or invisible character %U", r)
		}
	}
	return ""
}

// clip shortens a text for a message.
func clip(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// String returns the path as it was parsed.
func (p Path) String() string { return p.text }

// IsZero reports whether p is the zero Path, which names nothing.
func (p Path) IsZero() bool { return p.text == "" }

// Cell returns the name of the cell.
func (p Path) Cell() string {
	if p.IsZero() {
		return ""
	}
	return p.text[len("/"+Root+"/"):p.cell]
}

// Name returns the path within its cell, by which the cell knows the node.
func (p Path) Name() Name {
	if p.IsZero() {
		return ""
	}
	return Name(p.text[p.cell:])
}

// Depth returns the number of components below the cell.
func (p Path) Depth() int { return p.Name().Depth() }

// IsRoot reports whether p is the root directory of its cell.
func (p Path) IsRoot() bool { return !p.IsZero() && p.Name() == "" }

// Base returns the last component, or the cell's name for its root.
func (p Path) Base() string { return p.text[strings.LastIndexByte(p.text, '/')+1:] }

// Parent returns the directory that p is in. The root is its own parent.
func (p Path) Parent() Path {
	if p.IsZero() || p.IsRoot() {
		return p
	}
	return Path{text: p.text[:strings.LastIndexByte(p.text, '/')], cell: p.cell}
}

// Join returns the path of relative ("a" or "a/b") below p, validated.
func (p Path) Join(relative string) (Path, error) {
	return ParsePath(p.text + "/" + relative)
}

// Name is what follows the cell in a path: "" for the root directory, else
// "/a/b". A cell knows its nodes by Name, so that it has one tree although clients
// call it by two names ("local" and its own). Names come from a Path, or from a log
// that has them from one; they are not validated again.
type Name string

// In returns the path of the node in the cell of that name. It fails only if
// cell is no cell's name or makes the path too long.
func (n Name) In(cell string) (Path, error) { return ParsePath("/" + Root + "/" + cell + string(n)) }

// Depth returns the number of components.
func (n Name) Depth() int { return strings.Count(string(n), "/") }

// Base returns the last component, "" for the root.
func (n Name) Base() string { return string(n[strings.LastIndexByte(string(n), '/')+1:]) }

// Parent returns the name of the directory n is in. The root is its own parent.
func (n Name) Parent() Name {
	if n == "" {
		return ""
	}
	return n[:max(strings.LastIndexByte(string(n), '/'), 0)] // a name without a slash has no parent
}
