package raftfsm_test

import (
	"bytes"
	"hash/crc64"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// restoring is a cell in which an operator restores a backup.
type restoring struct {
	*cell
	operator, other api.SessionID
}

// step does a step, and reads the state from a snapshot after it, as a replica that was restarted does.
func (c *restoring) step(by api.SessionID, step raftfsm.Restore, want api.Code) raftfsm.Result {
	c.t.Helper()
	step.Mutation = c.mutation(by)
	r := c.apply(raftfsm.Command{Restore: &step})
	stopIf(c.t, r.Code() != want, "%+v: %v, want %v", step, r.Err(), want)
	var snapshot bytes.Buffer
	must(c.state.WriteTo(&snapshot))(c.t)
	read := must(raftfsm.ReadState(&snapshot, raftfsm.MaxLevel))(c.t)
	c.state = read
	return r
}

// backedUp is a node of a backup.
func backedUp(name api.Name, edit func(*namespace.Node)) *namespace.Node {
	n := &namespace.Node{Name: name, Kind: api.File, Instance: 7, Content: 8, ACLs: 9, Lock: 10, ACL: api.ACL{Read: "everyone", Write: "everyone", Change: "everyone"}}
	switch name {
	case "", api.ACLDir:
		n.Kind = api.Directory
	case namespace.ACLFile("everyone"):
		n.Contents = []byte("*\n")
	}
	if edit != nil {
		edit(n)
	}
	n.Checksum = crc64.Checksum(n.Contents, crc64.MakeTable(crc64.ECMA))
	return n
}

func newRestoring(t *testing.T) *restoring {
	c := &restoring{cell: newCell(t)}
	c.operator, c.other = c.session("operator"), c.session("other")
	return c
}

func (c *restoring) begin() {
	c.step(c.operator, raftfsm.Restore{Begin: &raftfsm.RestoreBegin{Cell: "local", CellID: "ff112233445566778899aabbccddeeff", Level: 1, Counter: 1000, Nodes: 5, Source: sourceOfTests}}, api.OK)
}

var sourceOfTests = raftfsm.BackupSource{Index: 44, TakenUnix: 1_700_000_000, Recovered: "r4"}

func (c *restoring) add(want api.Code, part uint64, nodes ...*namespace.Node) {
	c.t.Helper()
	c.step(c.operator, raftfsm.Restore{Add: &raftfsm.RestoreAdd{Part: part, Nodes: nodes}}, want)
}

// Each step is taken in its order, by the operator that began, and with nobody else there at the end.
func TestRestoreSteps(t *testing.T) {
	c := newRestoring(t)
	file, handle := c.file(c.other, "/f")
	lock := c.acquire(file, c.claim(c.other, handle))[0].Answer.Generation
	seal, finish := raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: "because"}}, raftfsm.Restore{Finish: true}
	c.step(c.operator, finish, api.InvalidArgument)
	c.begin()
	c.step(c.other, raftfsm.Restore{Begin: &raftfsm.RestoreBegin{}}, api.Exists)
	c.step(c.other, seal, api.InvalidArgument)
	c.add(api.InvalidArgument, 2)
	c.add(api.OK, 1, backedUp("", nil), backedUp("/acl", nil), backedUp("/acl/everyone", nil))
	c.step(c.operator, seal, api.InvalidArgument) // two nodes are missing
	c.step(c.operator, finish, api.InvalidArgument)
	held := func(n *namespace.Node) {
		n.Mode, n.Holders, n.Openers, n.Ephemeral = api.Exclusive, []namespace.Holder{{Owner: namespace.Owner{Session: 3, Handle: 1}}}, []namespace.Owner{{Session: 3, Handle: 1}}, true
		n.Children = 5
	}
	c.add(api.OK, 2, backedUp("/new", nil), backedUp("/e", held))
	c.step(c.operator, raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: strings.Repeat("x", api.MaxReason+1)}}, api.InvalidArgument)
	if r := c.step(c.operator, seal, api.OK); len(r.Terminating) != 1 || r.Terminating[0] != c.other {
		t.Fatalf("%+v", r)
	}
	c.add(api.InvalidArgument, 3)
	c.step(c.operator, finish, api.Exists)
	if r := c.apply(raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte("late"), Lease: 12 * time.Second}}); r.Code() != api.Unavailable {
		t.Fatal(r.Err())
	}
	if n, _ := c.state.Tree.Get("/f"); n == nil || n.Lock != lock || len(n.Holders) != 1 {
		t.Fatalf("the cell is another before the end: %+v", n)
	}
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: c.other, Reason: api.ByOperator}}}})
	before := c.state.Counter
	r := c.step(c.operator, finish, api.OK)
	failIf(t, !r.Restored || len(r.Dying) != 1 || r.Dying[0].Name != "/e", "%+v", r)
	if s := c.state; s.Counter != before+raftfsm.RestoreGap && s.Counter != 1000+raftfsm.RestoreGap || s.Counter < before+raftfsm.RestoreGap ||
		s.CellID != "ff112233445566778899aabbccddeeff" || s.Origin != "00112233445566778899aabbccddeeff" {
		t.Errorf("counter %d after %d, id %s, origin %s", s.Counter, before, s.CellID, s.Origin)
	}
	if d, ok := c.state.Tree.Delay("/f"); !ok || d.For != 10*time.Second {
		t.Errorf("the lock-delay of the last holder: %+v, %v", d, ok)
	}
	if n, ok := c.state.Tree.Get("/e"); !ok || !n.Dying() || len(n.Holders) > 0 || n.Children != 0 || uint64(n.Lock) != c.state.Counter {
		t.Errorf("%+v", n)
	}
	if _, there := c.state.Tree.Get("/f"); there {
		t.Error("what the cell had is still there")
	}
	var snapshot bytes.Buffer
	must(c.state.WriteTo(&snapshot))(t)
	read, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel)
	if err != nil || read.Restored == nil || *read.Restored != *c.state.Restored || read.Restored.Source != sourceOfTests || read.Restored.Counter != c.state.Counter {
		t.Errorf("from a snapshot: %+v, %v", read.Restored, err)
	}
}

// Only a session that caches nothing and owns nothing restores a backup, of a level that the cell has, and with numbers that leave room.
func TestRestoreIsRefused(t *testing.T) {
	c := newRestoring(t)
	r := c.apply(raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte("c"), Lease: 12 * time.Second, MayCache: true}})
	begin := func(edit func(*raftfsm.RestoreBegin)) raftfsm.Restore {
		b := raftfsm.RestoreBegin{Cell: "local", Level: 1, Counter: 1000, Nodes: 1}
		edit(&b)
		return raftfsm.Restore{Begin: &b}
	}
	same := func(*raftfsm.RestoreBegin) {}
	c.step(r.Session, begin(same), api.InvalidArgument)
	c.step(c.operator, begin(func(b *raftfsm.RestoreBegin) { b.Level = raftfsm.MaxLevel + 1 }), api.InvalidArgument)
	c.step(c.operator, begin(func(b *raftfsm.RestoreBegin) { b.Counter = api.MaxGeneration }), api.InvalidArgument)
	for _, id := range []string{"no id", strings.Repeat("r", 65)} {
		c.step(c.operator, begin(func(b *raftfsm.RestoreBegin) { b.Source.Recovered = id }), api.InvalidArgument)
	}
	c.step(c.operator, begin(same), api.OK)
	ref, handle := c.file(c.operator, "/own")
	claim := c.claim(c.operator, handle)
	generation := c.acquire(ref, claim)[0].Answer.Generation
	seal := raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: "because"}}
	c.step(c.operator, seal, api.InvalidArgument)
	c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(c.operator), Lock: ref, Handle: handle, Generation: generation}})
	c.step(c.operator, seal, api.OK)
}

// A restore can be given up until it has finished, sealed or not: by its author, by an operator who cannot have a session, and by the master.
func TestRestoreIsGivenUp(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for name, give := range map[string]func(c *restoring) raftfsm.Restore{
			"its author": func(c *restoring) raftfsm.Restore {
				return raftfsm.Restore{Mutation: c.mutation(c.operator), GiveUp: true}
			},
			"an operator": func(c *restoring) raftfsm.Restore {
				return raftfsm.Restore{GiveUp: true, Of: c.operator, Operator: "other"}
			},
			"the master": func(c *restoring) raftfsm.Restore {
				return raftfsm.Restore{GiveUp: true, Of: c.operator}
			},
		} {
			c := newRestoring(t)
			c.begin()
			if sealed {
				c.add(api.OK, 1, backedUp("", nil), backedUp("/acl", nil), backedUp("/acl/everyone", nil), backedUp("/d", nil), backedUp("/e", nil))
				c.step(c.operator, raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: "because"}}, api.OK)
			}
			other := raftfsm.Restore{GiveUp: true, Of: c.other}
			c.want(c.apply(raftfsm.Command{Restore: &other}), api.InvalidArgument) // it has none
			command := give(c)
			if r := c.apply(raftfsm.Command{Restore: &command}); !r.GaveUp {
				t.Fatalf("%s gives it up: %+v", name, r)
			}
			if by, _ := c.state.Restoring(); by != 0 {
				t.Errorf("%s has given it up, and it goes on", name)
			}
			c.step(c.operator, raftfsm.Restore{Finish: true}, api.InvalidArgument)
			c.step(c.operator, raftfsm.Restore{GiveUp: true}, api.InvalidArgument)
			c.session("somebody new")
		}
	}
	c := newRestoring(t)
	c.begin()
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: c.operator, Reason: api.ByExpiry}}}})
	if by, _ := c.state.Restoring(); by != 0 {
		t.Error("it goes on after the end of its session")
	}
	c = newRestoring(t)
	c.begin()
	ref, _ := c.file(c.operator, "/acl/operators")
	c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(c.operator), Node: ref, Contents: []byte("operator\n")}}), api.OK)
	c.want(c.apply(raftfsm.Command{Restore: &raftfsm.Restore{GiveUp: true, Of: c.operator, Operator: "other"}}), api.PermissionDenied)
}

// From the seal on the session that restores gets no lock and no ephemeral node, with which the restore could not finish.
func TestSealedRestoreTakesNothing(t *testing.T) {
	c := newRestoring(t)
	c.begin()
	file, handle := c.file(c.operator, "/f")
	c.add(api.OK, 1, backedUp("", nil), backedUp("/acl", nil), backedUp("/acl/everyone", nil), backedUp("/d", nil), backedUp("/e", nil))
	c.step(c.operator, raftfsm.Restore{Seal: &raftfsm.RestoreSeal{Why: "because"}}, api.OK)
	if r := c.acquire(file, c.claim(c.operator, handle))[0]; r.Pending || r.Answer.Code() != api.InvalidArgument {
		t.Errorf("a lock: %+v", r)
	}
	open := raftfsm.Open{Mutation: c.mutation(c.operator), Name: "/ephemeral", Create: api.MayCreate, Ephemeral: true}
	c.want(c.apply(raftfsm.Command{Open: &open}), api.InvalidArgument)
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: c.other, Reason: api.ByOperator}}}})
	if r := c.step(c.operator, raftfsm.Restore{Finish: true}, api.OK); !r.Restored {
		t.Errorf("%+v", r)
	}
}

// A node that cannot be ends the restore, and changes nothing.
func TestRestoreRefusesNodes(t *testing.T) {
	for name, unfit := range map[string]*namespace.Node{
		"none":                  nil,
		"a name":                backedUp("x", nil),
		"a long name":           backedUp(api.Name("/"+strings.Repeat("x", api.MaxPath)), nil),
		"no parent":             backedUp("/none/x", nil),
		"below a file":          backedUp("/f/x", nil),
		"there already":         backedUp("/f", nil),
		"the root again":        backedUp("", nil),
		"of the future":         backedUp("/x", func(n *namespace.Node) { n.Lock = 1001 }),
		"no instance":           backedUp("/x", func(n *namespace.Node) { n.Instance = 0 }),
		"no kind":               backedUp("/x", func(n *namespace.Node) { n.Kind = 9 }),
		"a directory with text": backedUp("/x", func(n *namespace.Node) { n.Kind, n.Contents = api.Directory, []byte("x") }),
		"too large":             backedUp("/x", func(n *namespace.Node) { n.Contents = make([]byte, api.MaxContents+1) }),
		"a long list":           backedUp("/x", func(n *namespace.Node) { n.ACL.Read = strings.Repeat("x", api.MaxACLName+1) }),
		"an ephemeral list":     backedUp("/acl/x", func(n *namespace.Node) { n.Ephemeral = true }),
		"a list that is none":   backedUp("/acl/x", func(n *namespace.Node) { n.Kind = api.Directory }),
		"a file with a quota":   backedUp("/x", func(n *namespace.Node) { n.Quota = &namespace.Quota{} }),
		"a negative quota": backedUp("/x", func(n *namespace.Node) {
			n.Kind, n.Quota = api.Directory, &namespace.Quota{Limit: namespace.Usage{Nodes: -1}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			c := newRestoring(t)
			c.begin()
			c.add(api.OK, 1, backedUp("", nil), backedUp("/acl", nil), backedUp("/f", nil))
			c.add(api.InvalidArgument, 2, backedUp("/before", nil), unfit)
			c.add(api.InvalidArgument, 2)
			if by, _ := c.state.Restoring(); by != 0 {
				t.Error("the restore goes on")
			}
		})
	}
	c := newRestoring(t)
	c.begin()
	wrong := backedUp("/x", nil)
	wrong.Checksum++
	c.add(api.InvalidArgument, 1, wrong)
}

// A quota that nobody could set or take away ends the restore, too.
func TestRestoreRefusesQuotas(t *testing.T) {
	for _, principal := range []string{"", strings.Repeat("p", api.MaxPrincipal+1)} {
		c := newRestoring(t)
		c.begin()
		c.step(c.operator, raftfsm.Restore{Add: &raftfsm.RestoreAdd{Part: 1, Quotas: []raftfsm.PrincipalQuota{{Principal: principal, Quota: api.Quota{Nodes: 1}}}}}, api.InvalidArgument)
		if by, _ := c.state.Restoring(); by != 0 {
			t.Errorf("the quota of %.20q: the restore goes on", principal)
		}
	}
}
