package raftfsm_test

import (
	"cmp"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// modelBackup is a backup that is being restored.
type modelBackup struct {
	by     api.SessionID
	since  int64
	begin  raftfsm.RestoreBegin
	part   uint64
	sealed bool
	nodes  map[api.Name]*modelNode
	quotas map[string]api.Quota
}

// giveUpRestore gives a restore up, for its author, an operator without a session, or the master.
func (m *model) giveUpRestore(by api.SessionID, operator string) raftfsm.Result {
	switch {
	case operator != "" && !m.operates(operator):
		return raftfsm.Result{Answer: refused(api.PermissionDenied)}
	case m.staged == nil || m.staged.by != by:
		return raftfsm.Result{Answer: refused(api.InvalidArgument)}
	}
	m.staged = nil
	return raftfsm.Result{GaveUp: true}
}

// isSealed reports whether a backup is complete, and is about to take the place of everything: nobody gets a lock, or opens an ephemeral node.
func (m *model) isSealed() bool { return m.staged != nil && m.staged.sealed }

func (m *model) restore(c *raftfsm.Restore) raftfsm.Result {
	no := func(code api.Code) raftfsm.Result { return raftfsm.Result{Answer: refused(code)} }
	id := c.Mutation.Session
	g := m.staged
	owns := slices.ContainsFunc(slices.Collect(maps.Values(m.nodes)), func(n *modelNode) bool { return n.ownedBy(id) })
	switch {
	case !m.operates(m.principal(id)):
		return no(api.PermissionDenied)
	case c.Begin != nil && g != nil && g.by != id:
		return no(api.Exists)
	case c.Begin != nil && (c.Begin.Level > m.level || !(c.Begin.CellID == m.lineage && c.Begin.Counter <= m.counter) && max(c.Begin.Counter, m.counter) > api.MaxGeneration-1<<41 || len(c.Begin.Source.Recovered) > 2 || m.clients[id].record.MayCache):
		return no(api.InvalidArgument)
	case c.Begin != nil:
		root := newModel().nodes[""]
		m.staged = &modelBackup{by: id, since: m.wall, begin: *c.Begin, nodes: map[api.Name]*modelNode{"": root}, quotas: map[string]api.Quota{}}
		return raftfsm.Result{}
	case g == nil || g.by != id:
		return no(api.InvalidArgument)
	case c.Add != nil && (g.sealed || c.Add.Part != g.part+1):
		return no(api.InvalidArgument)
	case c.Add != nil:
		if !g.add(c.Add) {
			m.staged = nil
			return no(api.InvalidArgument)
		}
		g.part++
		return raftfsm.Result{}
	case c.Seal != nil && (len(c.Seal.Why) > api.MaxReason || owns || len(g.nodes) != g.begin.Nodes || len(g.quotas) != g.begin.Quotas):
		return no(api.InvalidArgument)
	case c.Seal != nil:
		g.sealed = true
		return raftfsm.Result{Terminating: m.terminateOthers(id, c.Seal.Why)}
	case c.GiveUp:
		return m.giveUpRestore(id, "")
	case c.Finish && g.sealed && len(m.clients) > 1:
		return no(api.Exists)
	case !c.Finish || !g.sealed:
		return no(api.InvalidArgument)
	}
	r := raftfsm.Result{Restored: true}
	m.nodes, m.quotas, m.staged, m.hands = g.nodes, g.quotas, nil, map[string]api.Name{}
	if g.begin.CellID != m.lineage || g.begin.Counter > m.counter {
		m.counter = max(m.counter, g.begin.Counter) + 1<<40
	} else {
		m.counter++
	}
	for _, n := range m.nodes {
		n.instance, n.content, n.acls = api.Generation(m.counter), api.Generation(m.counter), api.Generation(m.counter)
		if n.lock > 0 {
			n.lock = n.instance
		}
	}
	if g.begin.CellID != m.lineage {
		m.origin = cmp.Or(m.origin, m.lineage)
	}
	m.lineage = g.begin.CellID
	m.restored = fmt.Sprintf("restored %+v", raftfsm.Restoration{Source: g.begin.Source, AtUnix: m.wall, Counter: m.counter})
	for _, name := range slices.SortedFunc(maps.Keys(m.nodes), compareInTree) {
		if m.nodes[name].ephemeral {
			r.Dying = append(r.Dying, namespace.Ref{Name: name, Instance: m.nodes[name].instance})
		}
	}
	return r
}

func (n *modelNode) ownedBy(id api.SessionID) bool {
	return slices.ContainsFunc(n.holders, func(h namespace.Holder) bool { return h.Session == id }) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(n.openers)), func(o namespace.Owner) bool { return o.Session == id })
}

func (m *model) terminateOthers(id api.SessionID, why string) (others []api.SessionID) {
	for _, other := range slices.Sorted(maps.Keys(m.clients)) {
		if other == id {
			continue
		}
		others = append(others, other)
		if m.clients[other].record.Terminating == nil {
			m.clients[other].record.Terminating = &refusal.Intervention{Principal: m.principal(id), Why: why}
		}
	}
	return others
}

// add adds a part, and reports whether it can be.
func (g *modelBackup) add(c *raftfsm.RestoreAdd) bool {
	for _, n := range c.Nodes {
		parent := g.nodes[n.Name.Parent()]
		newest := max(n.Instance, n.Content, n.ACLs, n.Lock)
		switch {
		case namespace.CheckName(n.Name) != nil, n.Name == "" && len(g.nodes) > 1, n.Name != "" && g.nodes[n.Name] != nil, parent == nil || parent.kind != api.Directory:
			return false
		case n.Name == "" && n.Kind != api.Directory, !n.Kind.Valid(), n.Kind == api.Directory && len(n.Contents) > 0:
			return false
		case n.Ephemeral && (n.Name == "" || n.Name == "/acl" || n.Name.Parent() == "/acl"), n.Name == "/acl" && n.Kind != api.Directory, n.Name.Parent() == "/acl" && n.Kind != api.File:
			return false
		case n.Instance == 0, n.Content == 0, n.ACLs == 0, uint64(newest) > g.begin.Counter, n.Checksum != crc64.Checksum(n.Contents, crc64.MakeTable(crc64.ECMA)):
			return false
		}
		g.nodes[n.Name] = &modelNode{
			kind: n.Kind, ephemeral: n.Ephemeral, instance: n.Instance, content: n.Content, acls: n.ACLs, lock: n.Lock, contents: string(n.Contents),
			acl: n.ACL, creator: n.Creator, modified: n.ModifiedUnix, openers: map[namespace.Owner]bool{},
		}
		if n.Quota != nil {
			g.nodes[n.Name].limit = n.Quota.Limit
		}
	}
	for _, q := range c.Quotas {
		if q.Quota == (api.Quota{}) || q.Quota.Validate() != nil {
			return false
		}
		g.quotas[q.Principal] = q.Quota
	}
	return true
}

// compareInTree orders names as snapshots do: those of less depth first.
func compareInTree(a, b api.Name) int {
	if d := a.Depth() - b.Depth(); d != 0 {
		return d
	}
	if a < b {
		return -1
	}
	return 1
}

// restore makes the next step of a restore, or a step that is not the next.
func (d *driver) restore() raftfsm.Command {
	by := d.session()
	for _, id := range slices.Sorted(maps.Keys(d.m.clients)) {
		if !d.m.clients[id].record.MayCache && !d.rarely(4) {
			by = id
		}
	}
	step := raftfsm.Restore{}
	g := d.m.staged
	if g != nil && !d.rarely(8) {
		by = g.by
	}
	if g != nil && d.rarely(12) { // an operator without a session, or the master gives it up
		return raftfsm.Command{Restore: &raftfsm.Restore{GiveUp: true, Of: by, Operator: []string{"", "alice", "bob"}[d.pick(3)]}}
	}
	next := d.pick(5) // a step that may not be the next one
	switch {
	case d.rarely(6):
	case g == nil:
		next = 0
	case g.sealed:
		next = 3
		if others := len(d.m.clients) - 1; others > 0 && !d.rarely(4) {
			return d.endOthers(g.by)
		}
	case len(g.nodes) >= g.begin.Nodes:
		next = 2
	default:
		next = 1
	}
	switch step.Mutation = d.mutation(by); next {
	case 0:
		step.Begin = &raftfsm.RestoreBegin{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Level: d.m.level, Counter: uint64(40 + d.pick(20)), Nodes: 3 + d.pick(4), Quotas: d.pick(4) / 3}
		step.Begin.Source = raftfsm.BackupSource{Index: uint64(d.pick(3)), TakenUnix: 5, Recovered: []string{"", "r1", "no id", strings.Repeat("r", 65)}[d.pick(4)/2*d.pick(4)%4]}
		if step.Begin.Counter%2 == 0 {
			step.Begin.CellID = "ffeeddccbbaa99887766554433221100" // of a cell that had this one's name
		}
		if d.rarely(8) {
			step.Begin.Level++
		}
		if d.rarely(16) {
			step.Begin.Counter = api.MaxGeneration
		}
	case 1:
		step.Add = d.part(g)
	case 2:
		step.Seal = &raftfsm.RestoreSeal{Why: "because"}
		if d.rarely(20) {
			step.Seal.Why = strings.Repeat("x", api.MaxReason+1)
		}
	case 3:
		step.Finish = true
	case 4:
		step.GiveUp = true
	}
	return raftfsm.Command{Restore: &step}
}

// part makes a part of a backup, which mostly can be.
func (d *driver) part(g *modelBackup) *raftfsm.RestoreAdd {
	add := &raftfsm.RestoreAdd{Part: 1}
	if g == nil {
		return add
	}
	if add.Part = g.part + 1; d.rarely(20) {
		add.Part--
	}
	if len(g.quotas) < g.begin.Quotas {
		add.Quotas = []raftfsm.PrincipalQuota{{Principal: "alice", Quota: api.Quota{Nodes: 3, Sessions: d.pick(3)}}}
	}
	for range 1 + d.pick(2) {
		n := d.backedUp(g)
		add.Nodes = append(add.Nodes, n)
	}
	return add
}

// backedUp makes a node of a backup: one of those that the lists need first.
func (d *driver) backedUp(g *modelBackup) *namespace.Node {
	gen := func() api.Generation { return api.Generation(2 + d.pick(38)) }
	n := &namespace.Node{Name: d.name(), Kind: api.File, Instance: gen(), Content: gen(), ACLs: gen(), Lock: api.Generation(d.pick(39)), ACL: api.ACL{Read: "everyone", Write: "everyone", Change: "everyone"}, Creator: "alice"}
	switch {
	case g.part == 0 && d.rarely(2):
		n.Name = ""
	case g.nodes["/acl"] == nil:
		n.Name = "/acl"
	case g.nodes["/acl/everyone"] == nil:
		n.Name, n.Contents = "/acl/everyone", []byte("*\n")
	case g.nodes["/d"] == nil:
		n.Name = "/d"
	default:
		n.Ephemeral, n.Contents = d.rarely(3), []byte("x")
	}
	if dirs := []api.Name{"/d", "/d/e", "/acl", ""}; slices.Contains(dirs, n.Name) {
		n.Kind, n.Contents = api.Directory, nil
		if d.rarely(3) {
			n.Quota = &namespace.Quota{Limit: namespace.Usage{Nodes: 2}, Used: namespace.Usage{Nodes: 7}}
		}
	}
	n.Checksum, n.Children = crc64.Checksum(n.Contents, crc64.MakeTable(crc64.ECMA)), d.pick(2)
	if d.rarely(30) {
		n.Checksum++
	}
	if d.rarely(4) { // locked and open when the backup was taken
		n.Mode, n.Holders = api.Exclusive, []namespace.Holder{{Owner: namespace.Owner{Session: 3, Handle: 1}}}
		n.Openers = []namespace.Owner{{Session: 3, Handle: 1}}
	}
	return n
}

// endOthers ends all sessions but one.
func (d *driver) endOthers(but api.SessionID) raftfsm.Command {
	var c raftfsm.EndSessions
	for _, id := range slices.Sorted(maps.Keys(d.m.clients)) {
		if id != but {
			c.Ends = append(c.Ends, raftfsm.End{Session: id, Reason: api.ByOperator, Acknowledged: d.rarely(2)})
		}
	}
	return raftfsm.Command{EndSessions: &c}
}
