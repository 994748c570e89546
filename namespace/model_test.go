package namespace_test

import (
	"cmp"
	"hash/crc64"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// naive does what a Tree does, with plain maps and full scans. Its nodes count
// neither their children nor what is below them; it fills these in where it
// returns nodes for comparison.
type naive struct {
	nodes  map[api.Name]*namespace.Node
	delays map[api.Name]namespace.Delay
}

func newNaive(acl api.ACL) *naive {
	root := &namespace.Node{Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1, ACL: acl}
	return &naive{nodes: map[api.Name]*namespace.Node{"": root}, delays: map[api.Name]namespace.Delay{}}
}

func (m *naive) names() []api.Name { return slices.Sorted(maps.Keys(m.nodes)) }

// children returns the names directly in a directory, by name.
func (m *naive) children(dir api.Name, after string) (names []api.Name) {
	for _, name := range m.names() {
		if name != "" && name.Parent() == dir && name.Base() > after {
			names = append(names, name)
		}
	}
	return names
}

// list returns the nodes of those names as a tree would have them.
func (m *naive) list(names []api.Name) []namespace.Node {
	nodes := []namespace.Node{}
	for _, name := range names {
		n := *m.nodes[name]
		n.Children = len(m.children(name, ""))
		if n.Quota != nil {
			n.Quota = &namespace.Quota{Limit: n.Quota.Limit, Used: m.below(name)}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (m *naive) all() []namespace.Node {
	names := m.names()
	slices.SortStableFunc(names, func(a, b api.Name) int { return cmp.Compare(a.Depth(), b.Depth()) })
	return m.list(names)
}

func (m *naive) locked(at api.Name) []namespace.Node {
	return m.list(slices.DeleteFunc(m.names(), func(name api.Name) bool {
		within := at == "" || name == at || strings.HasPrefix(string(name), string(at)+"/")
		return !within || len(m.nodes[name].Holders) == 0
	}))
}

func (m *naive) ownedBy(session api.SessionID) []namespace.Node {
	return m.list(slices.DeleteFunc(m.names(), func(name api.Name) bool {
		for _, h := range m.nodes[name].Holders {
			if h.Session == session {
				return false
			}
		}
		for _, o := range m.nodes[name].Openers {
			if o.Session == session {
				return false
			}
		}
		return true
	}))
}

func (m *naive) counts() (c namespace.Counts) {
	for name, n := range m.nodes {
		c.Nodes++
		c.Bytes += int64(len(n.Contents))
		c.Names += int64(len(name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change) + len(n.Creator))
		if n.Kind == api.File && strings.HasPrefix(string(name), "/acl/") {
			c.Lists += int64(len(n.Contents))
		}
		if len(n.Holders) > 0 {
			c.Locks++
		}
		if n.Quota != nil {
			c.Limited++
		}
	}
	return c
}

func (m *naive) resolve(ref namespace.Ref) *namespace.Node {
	if n := m.nodes[ref.Name]; n != nil && n.Instance == ref.Instance {
		return n
	}
	return nil
}

func (m *naive) create(name api.Name, spec namespace.Spec, instance api.Generation) api.Code {
	parent := m.nodes[name.Parent()]
	switch {
	case !spec.Kind.Valid() || instance == 0 || spec.Ephemeral && spec.Opener.Session == 0 || spec.Kind == api.Directory && len(spec.Contents) > 0:
		return api.InvalidArgument
	case len(spec.Contents) > api.MaxContents:
		return api.TooLarge
	case m.nodes[name] != nil:
		return api.Exists
	case parent == nil:
		return api.NotFound
	case parent.Kind == api.File:
		return api.NotDirectory
	case parent.Ephemeral && len(parent.Openers) == 0:
		return api.Exists
	}
	n := &namespace.Node{Name: name, Kind: spec.Kind, Ephemeral: spec.Ephemeral, Instance: instance, ACL: spec.ACL, Content: instance, ACLs: instance, Creator: spec.Creator}
	if n.ACL.Read == "" {
		n.ACL.Read = parent.ACL.Read
	}
	if n.ACL.Write == "" {
		n.ACL.Write = parent.ACL.Write
	}
	if n.ACL.Change == "" {
		n.ACL.Change = parent.ACL.Change
	}
	m.write(n, spec.Contents)
	if spec.Ephemeral {
		n.Openers = []namespace.Owner{spec.Opener}
	}
	m.nodes[name] = n
	return api.OK
}

func (m *naive) write(n *namespace.Node, contents []byte) {
	n.Contents = nil
	if len(contents) > 0 {
		n.Contents = contents
	}
	n.Checksum = crc64.Checksum(contents, crc64.MakeTable(crc64.ECMA))
}

func (m *naive) setContents(ref namespace.Ref, contents []byte, ifContent *api.Generation, next func() api.Generation) api.Code {
	n := m.resolve(ref)
	switch {
	case n == nil:
		return api.HandleClosed
	case n.Kind == api.Directory:
		return api.IsDirectory
	case len(contents) > api.MaxContents:
		return api.TooLarge
	case ifContent != nil && *ifContent != n.Content:
		return api.GenerationMismatch
	}
	m.write(n, contents)
	n.Content = next()
	return api.OK
}

func (m *naive) delete(ref namespace.Ref, by namespace.Owner) api.Code {
	n := m.resolve(ref)
	switch {
	case ref.Name == "":
		return api.PermissionDenied
	case n == nil:
		return api.HandleClosed
	case len(m.children(ref.Name, "")) > 0:
		return api.NotEmpty
	case len(n.Holders) > 1 || len(n.Holders) == 1 && n.Holders[0].Owner != by:
		return api.LockHeld
	}
	delete(m.nodes, ref.Name)
	return api.OK
}

func (m *naive) open(ref namespace.Ref, by namespace.Owner) api.Code {
	n := m.resolve(ref)
	switch {
	case n == nil:
		return api.HandleClosed
	case by.Session == 0:
		return api.InvalidArgument
	case !n.Ephemeral:
		return api.OK
	case len(n.Openers) == 0:
		return api.Exists
	}
	if !slices.Contains(n.Openers, by) {
		n.Openers = append(slices.Clone(n.Openers), by)
		slices.SortFunc(n.Openers, func(a, b namespace.Owner) int {
			return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Handle, b.Handle))
		})
	}
	return api.OK
}

func (m *naive) acquire(ref namespace.Ref, by namespace.Holder, mode api.LockMode, next func() api.Generation) (api.Generation, api.Code) {
	n := m.resolve(ref)
	if !mode.Valid() || by.Session == 0 || by.Delay < 0 || by.Delay > api.MaxLockDelay {
		return 0, api.InvalidArgument
	}
	if n == nil {
		return 0, api.HandleClosed
	}
	if n.Ephemeral && len(n.Openers) == 0 {
		return 0, api.Exists
	}
	for _, h := range n.Holders {
		if h.Owner == by.Owner {
			return 0, api.LockHeld
		}
	}
	if n.Ephemeral && !slices.Contains(n.Openers, by.Owner) {
		return 0, api.HandleClosed
	}
	if len(n.Holders) > 0 && (n.Revoked != nil || mode == api.Exclusive || n.Mode == api.Exclusive) {
		return 0, api.LockHeld
	}
	if d, ok := m.delays[ref.Name]; ok && (mode == api.Exclusive || d.Mode == api.Exclusive) {
		return 0, api.LockDelayed
	}
	if len(n.Holders) == 0 {
		n.Lock = next()
	}
	n.Mode = mode
	n.Holders = append(slices.Clone(n.Holders), by)
	return n.Lock, api.OK
}

// quit removes the holders for which gone is true from a node, also the openers
// if alsoOpen, and returns how those held the lock, each with its lock-delay.
func (m *naive) quit(n *namespace.Node, gone func(namespace.Owner) bool, alsoOpen bool) (left []namespace.Left) {
	var holders []namespace.Holder
	for _, h := range n.Holders {
		if gone(h.Owner) {
			one := &api.Holding{Session: h.Session, Mode: n.Mode, Generation: n.Lock, Delay: h.Delay, Reason: h.Reason, FromUnix: h.SinceUnix}
			if n.Revoked != nil {
				one.End, one.EndedBy, one.EndedWhy = api.ByBreak, n.Revoked.Principal, n.Revoked.Why
			}
			left = append(left, namespace.Left{Lock: n.Ref(), Holding: one})
		} else {
			holders = append(holders, h)
		}
	}
	var openers []namespace.Owner
	for _, o := range n.Openers {
		if !alsoOpen || !gone(o) {
			openers = append(openers, o)
		}
	}
	n.Holders, n.Openers = holders, openers
	if len(holders) == 0 {
		n.Mode, n.Revoked = 0, nil
	}
	return left
}

func (m *naive) tell(d *namespace.Dropped, n *namespace.Node, left []namespace.Left, failed bool) {
	if _, delayed := m.delays[n.Name]; !delayed && len(left) > 0 {
		d.Free = append(d.Free, n.Name)
	}
	if len(left) > 0 && len(n.Holders) == 0 {
		d.Vacant = append(d.Vacant, namespace.Vacancy{Lock: n.Ref(), Generation: n.Lock})
	}
	if n.Ephemeral && len(n.Openers) == 0 {
		d.Dying = append(d.Dying, n.Ref())
	}
	for _, one := range left {
		if !failed {
			one.Holding.Delay = 0
		}
		d.Left = append(d.Left, one)
	}
}

func (m *naive) release(ref namespace.Ref, by namespace.Owner, generation api.Generation) (d namespace.Dropped, code api.Code) {
	n := m.resolve(ref)
	if n == nil {
		return d, api.HandleClosed
	}
	if n.Lock != generation || !slices.ContainsFunc(n.Holders, func(h namespace.Holder) bool { return h.Owner == by }) {
		return d, api.NotHeld
	}
	m.tell(&d, n, m.quit(n, func(o namespace.Owner) bool { return o == by }, false), false)
	return d, api.OK
}

func (m *naive) close(ref namespace.Ref, by namespace.Owner) (d namespace.Dropped, code api.Code) {
	n := m.resolve(ref)
	if n == nil {
		return d, api.HandleClosed
	}
	m.tell(&d, n, m.quit(n, func(o namespace.Owner) bool { return o == by }, true), false)
	return d, api.OK
}

func (m *naive) dropSession(session api.SessionID, failed bool, next func() uint64) (d namespace.Dropped) {
	for _, owned := range m.ownedBy(session) {
		n := m.nodes[owned.Name]
		left := m.quit(n, func(o namespace.Owner) bool { return o.Session == session }, true)
		var delay namespace.Delay
		for _, one := range left {
			delay.For = max(delay.For, one.Holding.Delay)
		}
		if failed && delay.For > 0 {
			delay.ID, delay.Mode = next(), owned.Mode
			if before, ok := m.delays[n.Name]; ok {
				delay.For = max(delay.For, before.For)
				delay.Mode = min(delay.Mode, before.Mode) // Exclusive is the lower value
			}
			m.delays[n.Name] = delay
			d.Delayed = append(d.Delayed, n.Name)
		}
		m.tell(&d, n, left, failed)
	}
	return d
}

func (m *naive) remove(ref namespace.Ref) bool {
	n := m.resolve(ref)
	if n == nil || !n.Ephemeral || len(n.Openers) > 0 || len(m.children(ref.Name, "")) > 0 {
		return false
	}
	delete(m.nodes, ref.Name)
	return true
}

func (m *naive) endDelay(name api.Name, id uint64) bool {
	if d, ok := m.delays[name]; !ok || d.ID != id {
		return false
	}
	delete(m.delays, name)
	return true
}
