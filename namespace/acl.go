package namespace

import (
	"slices"
	"sort"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// maxACLFiles bounds the lists that one question reads; the lists beyond it
// admit nobody. Replicas of two versions must have the same bound (see "Feature levels"
// in package raftfsm).
const maxACLFiles = 64

// ACLFile returns the name of the file that holds an access control list.
func ACLFile(acl string) api.Name { return api.ACLDir + "/" + api.Name(acl) }

// Admits reports whether an access control list names the principal. The list
// is a file in api.ACLDir. Each line of it is one of
//
//	alice     a principal, exactly this name
//	*         every client, also one without an identity
//	@ops      every principal that the list ops admits
//	# text    a comment; empty lines are ignored too
//
// A list that does not exist admits nobody, and so does a directory of that
// name. A list that includes itself, directly or not, gains nothing by that.
func (t Tree) Admits(acl, principal string) bool {
	look := aclLook{tree: t, principal: principal, seen: map[string]bool{}}
	return look.admits(acl)
}

// aclLook is one search through a list and the lists that it includes. It reads
// each list once: a second reading would give the same answer.
type aclLook struct {
	tree      Tree
	principal string
	seen      map[string]bool
}

func (l aclLook) admits(acl string) bool {
	//mutants: same (no list has the empty name)
	if acl == "" || l.seen[acl] || len(l.seen) >= maxACLFiles {
		return false
	}
	l.seen[acl] = true
	file, ok := l.tree.Get(ACLFile(acl))
	if !ok || file.list == nil {
		return false
	}
	//mutant: return parseList(file.Contents).names(l.principal) || slices.ContainsFunc(file.list.includes, l.admits)
	return file.list.names(l.principal) || slices.ContainsFunc(file.list.includes, l.admits)
}

// SetACL replaces a node's ACL names by those in acl that are not empty. If
// ifACLs is not nil, it must be the node's ACL generation, else the error is
// GenerationMismatch (Chubby §2.6). The new generation comes from next, as with
// SetContents. The other errors are HandleClosed and InvalidArgument.
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
	_, found := sort.Find(len(l.ends), func(at int) int { return strings.Compare(principal, l.member(at)) })
	return l.everybody || found
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
