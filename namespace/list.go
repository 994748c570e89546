package namespace

import (
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// list is a parsed access control list. It is made once, when the file is
// written, and is a function of the file's contents. Every replica looks up
// rights for every Open while it applies the log, and a list may be as long as
// a file.
type list struct {
	everybody bool     // it has the line *
	includes  []string // the lists that it includes, in their order, each once; maxACLFiles at most, because Admits reads no more
	members   string   // the other lines, ascending, each once, without separators
	ends      []uint32 // where each of them ends in members
}

// parseList parses the contents of an access control list.
func parseList(contents []byte) *list {
	l := &list{}
	var members []string
	for line := range strings.Lines(string(contents)) {
		line = strings.TrimSpace(line)
		included, isList := strings.CutPrefix(line, "@")
		switch {
		case line == "" || line[0] == '#':
		case line == "*":
			l.everybody = true
		case !isList:
			members = append(members, line)
		//mutants: same (Admits reads no more of them)
		case included != "" && len(l.includes) < maxACLFiles && !slices.Contains(l.includes, included):
			l.includes = append(l.includes, strings.Clone(included))
		}
	}
	slices.Sort(members)
	//mutants: same (it only saves memory)
	members = slices.Compact(members)
	//mutant: l.members = strings.Join(members, "")
	l.members = strings.Clone(strings.Join(members, "")) // Join returns a single member as it is, a part of all the contents
	l.ends = make([]uint32, 0, len(members))
	end := 0
	for _, member := range members {
		end += len(member)
		l.ends = append(l.ends, uint32(end))
	}
	return l
}

// names reports whether the list itself, without those it includes, admits the
// principal. It takes O(log n).
func (l *list) names(principal string) bool {
	if l.everybody {
		return true
	}
	low, high := 0, len(l.ends)
	for low < high {
		at := (low + high) / 2
		switch c := strings.Compare(l.member(at), principal); {
		case c == 0:
			return true
		//mutants: same (equal is answered above)
		case c < 0:
			low = at + 1
		default:
			high = at
		}
	}
	return false
}

func (l *list) member(at int) string {
	begin := uint32(0)
	if at > 0 {
		begin = l.ends[at-1]
	}
	return l.members[begin:l.ends[at]]
}

// AdmitsNobody reports whether a node is no access control list, or one without an entry.
func (n *Node) AdmitsNobody() bool {
	return n.list == nil || !n.list.everybody && len(n.list.ends) == 0 && len(n.list.includes) == 0
}

// isACLFile reports whether a node's contents are an access control list.
func (n *Node) isACLFile() bool {
	//mutants: same (only files are there)
	return n.Kind == api.File && strings.HasPrefix(string(n.Name), string(api.ACLDir)+"/")
}
