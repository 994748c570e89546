package raftfsm_test

import (
	"cmp"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// wellFormed reports whether a name is valid.
func wellFormed(name api.Name) bool {
	if name == "" {
		return true
	}
	parts := strings.Split(string(name), "/")
	if parts[0] != "" || len(parts) > api.MaxDepth+1 || len(name) > api.MaxPath {
		return false
	}
	for _, part := range parts[1:] {
		if part == "" {
			return false
		}
	}
	return true
}

// above returns the name of the directory a node is in.
func above(name api.Name) api.Name {
	parts := strings.Split(string(name), "/")
	return api.Name(strings.Join(parts[:max(len(parts)-1, 0)], "/"))
}

func (m *model) resolve(ref namespace.Ref) *modelNode {
	if n := m.nodes[ref.Name]; n != nil && n.instance == ref.Instance {
		return n
	}
	return nil
}

func (m *model) children(dir api.Name) (count int) {
	for name := range m.nodes {
		if name != "" && above(name) == dir {
			count++
		}
	}
	return count
}

// below adds up what is below a directory, at any depth.
func (m *model) below(dir api.Name) (u namespace.Usage) {
	for name, n := range m.nodes {
		if strings.HasPrefix(string(name), string(dir)+"/") {
			u.Nodes++
			u.Bytes += int64(len(n.contents))
		}
	}
	return u
}

// usage adds up the existing nodes that a principal created.
func (m *model) usage(principal string) (u namespace.Usage) {
	for _, n := range m.nodes {
		if n.creator == principal {
			u.Nodes++
			u.Bytes += int64(len(n.contents))
		}
	}
	return u
}

// fits reports whether a limit leaves room; a change that needs no more always fits.
func fits(limit, used, more namespace.Usage) bool {
	nodes := more.Nodes <= 0 || limit.Nodes == 0 || used.Nodes+more.Nodes <= limit.Nodes
	bytes := more.Bytes <= 0 || limit.Bytes == 0 || used.Bytes+more.Bytes <= limit.Bytes
	return nodes && bytes
}

func (m *model) checkQuota(name api.Name, principal string, more namespace.Usage) bool {
	own, usual := m.quotas[principal], api.DefaultQuota()
	limit := namespace.Usage{Nodes: cmp.Or(own.Nodes, usual.Nodes), Bytes: cmp.Or(own.Bytes, usual.Bytes)}
	if !fits(limit, m.usage(principal), more) {
		return false
	}
	for dir, n := range m.nodes {
		if strings.HasPrefix(string(name), string(dir)+"/") && n.limit != (namespace.Usage{}) && !fits(n.limit, m.below(dir), more) {
			return false
		}
	}
	return true
}

// admits follows the lists that a list includes, each once (Chubby §2.3).
func (m *model) admits(acl, principal string) bool {
	lists := []string{acl}
	for i := 0; i < len(lists); i++ {
		n := m.nodes["/acl/"+api.Name(lists[i])]
		if n == nil || n.kind != api.File {
			continue
		}
		for line := range strings.SplitSeq(n.contents, "\n") {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "@"):
				if known := strings.Join(lists, "\n") + "\n"; !strings.Contains("\n"+known, "\n"+line[1:]+"\n") {
					lists = append(lists, line[1:])
				}
			case line == "*", line == principal:
				return true
			}
		}
	}
	return false
}

func (m *model) permits(n *modelNode, principal string, rights namespace.Rights) bool {
	return (rights&namespace.ToRead == 0 || m.admits(n.acl.Read, principal)) &&
		(rights&namespace.ToWrite == 0 || m.admits(n.acl.Write, principal)) &&
		(rights&namespace.ToChange == 0 || m.admits(n.acl.Change, principal))
}

// lacksList reports whether one of the names has no list.
func (m *model) lacksList(acl api.ACL) bool {
	for _, name := range []string{acl.Read, acl.Write, acl.Change} {
		if n := m.nodes["/acl/"+api.Name(name)]; name != "" && (n == nil || n.kind != api.File) {
			return true
		}
	}
	return false
}

func (n *modelNode) dying() bool { return n.ephemeral && len(n.openers) == 0 }

func (m *model) open(c *raftfsm.Open) raftfsm.Result {
	by := namespace.Owner{Session: c.Mutation.Session, Handle: api.HandleID(c.Mutation.Number)}
	n := m.nodes[c.Name]
	var code api.Code
	created := false
	switch principal := m.principal(by.Session); {
	case n != nil:
		if code = m.mayOpen(n, principal, c); code == api.OK && n.ephemeral && m.isSealed() {
			code = api.InvalidArgument
		}
	case c.Create == api.MustExist:
		code = api.NotFound
	default:
		code = m.create(c, principal)
		n, created = m.nodes[c.Name], code == api.OK
	}
	if code != api.OK {
		return raftfsm.Result{Answer: refused(code)}
	}
	if n.ephemeral {
		n.openers[by] = true
	}
	var r raftfsm.Result
	if created {
		r.Changes = []namespace.Change{m.change(namespace.Added, namespace.Ref{Name: c.Name, Instance: n.instance}, n.instance)}
		m.closeLists(&r, c.Name)
	}
	r.Answer = raftfsm.Answer{Created: created, Stat: m.stat(c.Name)}
	return r
}

func (m *model) mayOpen(n *modelNode, principal string, c *raftfsm.Open) api.Code {
	switch {
	case n.dying(), c.Create == api.MustCreate:
		return api.Exists
	case c.Kind == api.File && n.kind == api.Directory:
		return api.IsDirectory
	case c.Kind == api.Directory && n.kind == api.File:
		return api.NotDirectory
	case !m.permits(n, principal, c.Rights):
		return api.PermissionDenied
	}
	return api.OK
}

func (m *model) create(c *raftfsm.Open, principal string) api.Code {
	kind := cmp.Or(c.Kind, api.File)
	parent := m.nodes[above(c.Name)]
	switch {
	case !wellFormed(c.Name):
		return api.InvalidArgument
	case c.Name == "/acl" && (kind != api.Directory || c.Ephemeral), above(c.Name) == "/acl" && (kind == api.Directory || c.Ephemeral):
		return api.InvalidArgument
	case parent != nil && !m.permits(parent, principal, namespace.ToWrite):
		return api.PermissionDenied
	case m.lacksList(c.ACL):
		return api.NotFound
	case !m.checkQuota(c.Name, principal, namespace.Usage{Nodes: 1, Bytes: int64(len(c.Contents))}):
		return api.QuotaExceeded
	case c.Ephemeral && m.isSealed():
		return api.InvalidArgument
	}
	instance := api.Generation(m.draw())
	switch {
	case !kind.Valid(), kind == api.Directory && len(c.Contents) > 0:
		return api.InvalidArgument
	case len(c.Contents) > api.MaxContents:
		return api.TooLarge
	case parent == nil:
		return api.NotFound
	case parent.kind == api.File:
		return api.NotDirectory
	case parent.dying():
		return api.Exists
	}
	acl := api.ACL{Read: cmp.Or(c.ACL.Read, parent.acl.Read), Write: cmp.Or(c.ACL.Write, parent.acl.Write), Change: cmp.Or(c.ACL.Change, parent.acl.Change)}
	m.nodes[c.Name] = &modelNode{
		kind: kind, ephemeral: c.Ephemeral, instance: instance, content: instance, acls: instance, contents: string(c.Contents), acl: acl, creator: principal, modified: m.modified(),
		openers: map[namespace.Owner]bool{},
	}
	return api.OK
}

// change describes a change of a node and its directory.
func (m *model) change(what namespace.ChangeKind, node namespace.Ref, generation api.Generation) namespace.Change {
	c := namespace.Change{Kind: what, Node: node, Generation: generation}
	if node.Name != "" {
		dir := above(node.Name)
		c.Parent = namespace.Ref{Name: dir, Instance: m.nodes[dir].instance}
	}
	return c
}

func (m *model) setContents(c *raftfsm.SetContents) raftfsm.Result {
	n := m.resolve(c.Node)
	switch {
	case n == nil:
		return raftfsm.Result{Answer: refused(api.HandleClosed)}
	case !m.checkQuota(c.Node.Name, n.creator, namespace.Usage{Bytes: int64(len(c.Contents) - len(n.contents))}):
		return raftfsm.Result{Answer: refused(api.QuotaExceeded)}
	case n.kind == api.Directory:
		return raftfsm.Result{Answer: refused(api.IsDirectory)}
	case len(c.Contents) > api.MaxContents:
		return raftfsm.Result{Answer: refused(api.TooLarge)}
	case c.IfContent != nil && *c.IfContent != n.content:
		return raftfsm.Result{Answer: mismatch(n.content)}
	}
	n.contents = string(c.Contents)
	n.modified = m.modified()
	n.content = api.Generation(m.draw())
	r := raftfsm.Result{Changes: []namespace.Change{m.change(namespace.Written, c.Node, n.content)}}
	m.closeLists(&r, c.Node.Name)
	r.Answer = raftfsm.Answer{Stat: m.stat(c.Node.Name)}
	return r
}

func (m *model) setACL(c *raftfsm.SetACL) raftfsm.Result {
	n := m.resolve(c.Node)
	switch {
	case m.lacksList(c.ACL):
		return raftfsm.Result{Answer: refused(api.NotFound)}
	case n == nil:
		return raftfsm.Result{Answer: refused(api.HandleClosed)}
	case c.IfACLs != nil && *c.IfACLs != n.acls:
		return raftfsm.Result{Answer: mismatch(n.acls)}
	}
	n.acl = api.ACL{Read: cmp.Or(c.ACL.Read, n.acl.Read), Write: cmp.Or(c.ACL.Write, n.acl.Write), Change: cmp.Or(c.ACL.Change, n.acl.Change)}
	n.acls = api.Generation(m.draw())
	return raftfsm.Result{
		Answer:  raftfsm.Answer{Stat: m.stat(c.Node.Name)},
		Changes: []namespace.Change{m.change(namespace.ACLChanged, c.Node, n.acls)},
	}
}

func (m *model) delete(c *raftfsm.Delete) raftfsm.Result {
	n, by := m.resolve(c.Node), namespace.Owner{Session: c.Mutation.Session, Handle: c.Handle}
	switch {
	case c.Node.Name == "":
		return raftfsm.Result{Answer: refused(api.PermissionDenied)}
	case n == nil:
		return raftfsm.Result{Answer: refused(api.HandleClosed)}
	case m.children(c.Node.Name) > 0:
		return raftfsm.Result{Answer: refused(api.NotEmpty)}
	case len(n.holders) > 1, len(n.holders) == 1 && !n.holds(by):
		return raftfsm.Result{Answer: n.lockHeld()}
	}
	var r raftfsm.Result
	m.gone(&r, c.Node)
	return r
}

// remove removes ephemeral nodes that no handle has open, directories when they are empty (decision 11).
func (m *model) remove(c *raftfsm.Remove) (r raftfsm.Result) {
	for _, ref := range c.Nodes {
		if n := m.resolve(ref); n != nil && n.dying() && m.children(ref.Name) == 0 {
			m.gone(&r, ref)
		}
	}
	return r
}

// gone removes a node. A dying directory can be removed after its last child.
func (m *model) gone(r *raftfsm.Result, node namespace.Ref) {
	delete(m.nodes, node.Name)
	c := m.change(namespace.Removed, node, node.Instance)
	r.Changes = append(r.Changes, c)
	if m.nodes[c.Parent.Name].dying() && m.children(c.Parent.Name) == 0 {
		r.Dying = append(r.Dying, c.Parent)
	}
}

// setQuota needs the right to change the ACL of the root.
func (m *model) setQuota(c *raftfsm.SetQuota) api.Code {
	q := c.Quota
	if !m.operates(m.principal(c.Mutation.Session)) {
		return api.PermissionDenied
	}
	if c.Directory != nil {
		switch n := m.resolve(*c.Directory); {
		case n == nil:
			return api.HandleClosed
		case n.kind != api.Directory:
			return api.NotDirectory
		case q.Nodes < 0, q.Bytes < 0:
			return api.InvalidArgument
		default:
			n.limit = namespace.Usage{Nodes: q.Nodes, Bytes: q.Bytes}
		}
		return api.OK
	}
	if q.Nodes < 0 || q.Bytes < 0 || q.Sessions < 0 || q.Handles < 0 || q.Waiters < 0 {
		return api.InvalidArgument
	}
	m.quotas[c.Principal] = q
	if q == (api.Quota{}) {
		delete(m.quotas, c.Principal)
	}
	return api.OK
}

// raiseLevel needs the right to change the ACL of the root; the level never goes back.
func (m *model) raiseLevel(c *raftfsm.RaiseLevel) api.Code {
	switch {
	case !m.operates(m.principal(c.Mutation.Session)):
		return api.PermissionDenied
	case c.To <= m.level:
		return api.InvalidArgument
	}
	m.level = c.To
	return api.OK
}

func mismatch(current api.Generation) raftfsm.Answer {
	a := refused(api.GenerationMismatch)
	a.Refusal.Current = current
	return a
}
