package namespace_test

import (
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
	"pgregory.net/rapid"
)

// The machine's operations on ACLs, revocations and quotas, and the results of
// the naive twin.

// list draws the contents of an access control list.
func list(t *rapid.T) []byte {
	lines := rapid.SampledFrom([]string{"ann", "bob", "*", "@all", "@some", "@none", "# ann", "", " ann ", "#@all", "@", "an"})
	end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
	return []byte(strings.Join(rapid.SliceOfN(lines, 0, 4).Draw(t, "lines"), end))
}

func (m *machine) SetACL(t *rapid.T) {
	ref := m.ref(t)
	names := rapid.SampledFrom([]string{"", "mine", "all", strings.Repeat("x", api.MaxACLName+1)})
	acl := api.ACL{Read: names.Draw(t, "read"), Change: names.Draw(t, "change")}
	var ifACLs *api.Generation
	if rapid.Bool().Draw(t, "conditional") {
		ifACLs = m.generation(t, ref, func(n *namespace.Node) api.Generation { return n.ACLs })
	}
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.SetACL(ref, acl, ifACLs, w.drawGeneration)
		return outcomeOf(deref(n), err)
	})
	code := m.twin.setACL(ref, acl, ifACLs, m.twinGeneration)
	m.expect(t, got, m.node(ref.Name), code)
}

func (m *naive) setACL(ref namespace.Ref, acl api.ACL, ifACLs *api.Generation, next func() api.Generation) api.Code {
	n := m.resolve(ref)
	switch {
	case n == nil:
		return api.HandleClosed
	case len(acl.Read) > api.MaxACLName, len(acl.Change) > api.MaxACLName:
		return api.InvalidArgument
	case ifACLs != nil && *ifACLs != n.ACLs:
		return api.GenerationMismatch
	}
	if acl.Read != "" {
		n.ACL.Read = acl.Read
	}
	if acl.Change != "" {
		n.ACL.Change = acl.Change
	}
	n.ACLs = next()
	return api.OK
}

func (m *machine) Admits(t *rapid.T) {
	acl := rapid.SampledFrom([]string{"all", "some", "none", ""}).Draw(t, "acl")
	principal := rapid.SampledFrom([]string{"ann", "bob", "", "*", "# ann", "@all"}).Draw(t, "principal")
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.Admits(acl, principal), nil) })
	files := map[string]string{}
	for name, n := range m.twin.nodes {
		if list, ok := strings.CutPrefix(string(name), "/acl/"); ok && n.Kind == api.File {
			files[list] = string(n.Contents)
		}
	}
	m.expect(t, got, twinAdmits(files, acl, principal), api.OK)
}

// heldRef draws a reference to a node whose lock is held, if there is any.
func (m *machine) heldRef(t *rapid.T) namespace.Ref {
	if held := m.twin.locked(""); len(held) > 0 && rapid.IntRange(0, 9).Draw(t, "free") > 0 {
		n := rapid.SampledFrom(held).Draw(t, "held")
		return n.Ref()
	}
	return m.ref(t)
}

func (m *machine) Revoke(t *rapid.T) {
	ref := m.heldRef(t)
	why := rapid.SampledFrom([]string{"stuck", "lost", "", strings.Repeat("x", api.MaxReason+1)}).Draw(t, "why")
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.Revoke(ref, refusal.Intervention{Principal: "op", Why: why})
		return outcomeOf(deref(n), err)
	})
	code := m.twin.revoke(ref, why)
	m.expect(t, got, m.node(ref.Name), code)
}

func (m *naive) revoke(ref namespace.Ref, why string) api.Code {
	n := m.resolve(ref)
	switch {
	case len(why) > api.MaxReason:
		return api.InvalidArgument
	case n == nil:
		return api.HandleClosed
	case len(n.Holders) == 0:
		return api.NotHeld
	case n.Revoked == nil:
		n.Revoked = &refusal.Intervention{Principal: "op", Why: why}
	}
	return api.OK
}

func (m *machine) Evict(t *rapid.T) {
	ref := m.heldRef(t)
	generation := api.Generation(3)
	if n := m.twin.resolve(ref); n != nil && rapid.IntRange(0, 9).Draw(t, "wrong") > 0 {
		generation = n.Lock
	}
	var holders []namespace.Owner
	for range rapid.IntRange(0, 3).Draw(t, "holders") {
		holders = append(holders, m.ownerOf(t, ref))
	}
	got := m.do(t, func(w *world) outcome { return outcomeOf(w.tree.Evict(ref, generation, holders), nil) })
	m.expect(t, got, m.twin.evict(ref, generation, holders), api.OK)
}

func (m *naive) evict(ref namespace.Ref, generation api.Generation, holders []namespace.Owner) (d namespace.Dropped) {
	n := m.resolve(ref)
	if n == nil || n.Revoked == nil || n.Lock != generation {
		return d
	}
	m.tell(&d, n, m.quit(n, func(o namespace.Owner) bool {
		for _, h := range holders {
			if h == o {
				return true
			}
		}
		return false
	}, false), false)
	return d
}

func (m *machine) SetQuota(t *rapid.T) {
	ref := m.ref(t)
	limit := namespace.Usage{Nodes: rapid.IntRange(-1, 3).Draw(t, "nodes"), Bytes: rapid.Int64Range(-1, 9).Draw(t, "bytes")}
	if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
		limit = namespace.Usage{}
	}
	got := m.do(t, func(w *world) outcome {
		n, err := w.tree.SetQuota(ref, limit)
		return outcomeOf(deref(n), err)
	})
	code := m.twin.setQuota(ref, limit)
	m.expect(t, got, m.node(ref.Name), code)

	name, more := rapid.SampledFrom(machineNames).Draw(t, "name"), namespace.Usage{Nodes: rapid.IntRange(-1, 2).Draw(t, "more"), Bytes: rapid.Int64Range(-1, 9).Draw(t, "more bytes")}
	got = m.do(t, func(w *world) outcome { return outcomeOf(nil, w.tree.CheckQuota(name, more)) })
	m.expect(t, got, nil, m.twin.room(name, more))
}

func (m *naive) setQuota(ref namespace.Ref, limit namespace.Usage) api.Code {
	n := m.resolve(ref)
	switch {
	case n == nil:
		return api.HandleClosed
	case n.Kind != api.Directory:
		return api.NotDirectory
	case limit.Nodes < 0, limit.Bytes < 0:
		return api.InvalidArgument
	}
	n.Quota = &namespace.Quota{Limit: limit}
	if limit == (namespace.Usage{}) {
		n.Quota = nil
	}
	return api.OK
}

func (m *naive) room(name api.Name, more namespace.Usage) api.Code {
	for dir, n := range m.nodes {
		if !strings.HasPrefix(string(name), string(dir)+"/") || n.Quota == nil {
			continue
		}
		used, limit := m.below(dir), n.Quota.Limit
		if more.Nodes > 0 && limit.Nodes > 0 && used.Nodes+more.Nodes > limit.Nodes {
			return api.QuotaExceeded
		}
		if more.Bytes > 0 && limit.Bytes > 0 && used.Bytes+more.Bytes > limit.Bytes {
			return api.QuotaExceeded
		}
	}
	return api.OK
}

func (m *naive) below(dir api.Name) (u namespace.Usage) {
	for name, n := range m.nodes {
		if strings.HasPrefix(string(name), string(dir)+"/") {
			u.Nodes++
			u.Bytes += int64(len(n.Contents))
		}
	}
	return u
}

func (m *naive) usage(creator string) (u namespace.Usage) {
	for _, n := range m.nodes {
		if n.Creator == creator {
			u.Nodes++
			u.Bytes += int64(len(n.Contents))
		}
	}
	return u
}
