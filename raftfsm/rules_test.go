package raftfsm_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The model compares every answer and all of the state (TestStateAgainstModel); here is what its commands do not reach.

func (c *cell) want(r raftfsm.Result, code api.Code) raftfsm.Result {
	c.t.Helper()
	stopIf(c.t, r.Code() != code, "answered %v (%v), want %v", r.Code(), r.Err(), code)
	return r
}

// An invalid name is answered: it has no parent with an ACL to check, and no quotas above it.
func TestNoNameIsAnAnswer(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	root, _ := c.state.Tree.Get("")
	c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(a), Directory: new(root.Ref()), Quota: api.Quota{Nodes: 50}}}), api.OK)
	for _, name := range []api.Name{"x", "/", "//", "/a/", "/a//b", api.Name(strings.Repeat("/a", 600)), api.Name("/" + strings.Repeat("a", 2000))} {
		open := raftfsm.Open{Mutation: c.mutation(a), Name: name, Create: api.MayCreate, Kind: api.File}
		c.want(c.apply(raftfsm.Command{Open: &open}), api.InvalidArgument)
	}
	for _, ref := range []namespace.Ref{{Name: "x"}, {Name: "/"}, {}} {
		c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(a), Node: ref, Contents: []byte("x")}}), api.HandleClosed)
		c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(a), Directory: &ref}}), api.HandleClosed)
		c.want(c.apply(raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: c.mutation(a), Node: ref}}), api.HandleClosed)
		c.apply(raftfsm.Command{Evict: &raftfsm.Evict{Lock: ref, Holders: []namespace.Owner{{}}}})
		c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: []namespace.Ref{ref}}})
	}
	c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(a), Principal: "a", Quota: api.Quota{Waiters: -1}}}), api.InvalidArgument)
}

// A replica can read every snapshot that it writes: a lock may have any number of holders, and their answers are kept.
// An answer names only some of the holders.
func TestSnapshotOfManyHolders(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	node := namespace.Node{
		Name: "/lock", Kind: api.File, Instance: 2, Content: 1, ACLs: 1, Lock: 2, Mode: api.Shared,
		ACL: api.ACL{Read: "everyone", Write: "everyone", Change: "everyone"},
	}
	for handle := range api.HandleID(40_000) {
		node.Holders = append(node.Holders, namespace.Holder{
			Owner: namespace.Owner{Session: a, Handle: handle + 1}, Reason: strings.Repeat("x", api.MaxReason),
		})
	}
	root, _ := c.state.Tree.Get("")
	read, acls, everyone := namespace.New(root.ACL), namespace.Node{}, namespace.Node{}
	for n := range c.state.Tree.All() {
		switch n.Name {
		case "/acl":
			acls = *n
		case "/acl/everyone":
			everyone = *n
		}
	}
	top := *root
	top.Children++
	for _, n := range []*namespace.Node{&top, &acls, &node, &everyone} {
		noErr(t, read.Restore(n))
	}
	c.state.Tree = read
	try := c.claim(a, 50_000)
	try.Try = true
	if r := c.acquire(node.Ref(), try)[0]; r.Answer.Code() != api.LockHeld || len(r.Answer.Refusal.Holders) != refusal.MaxHolders {
		t.Errorf("%v names %d holders", r.Answer.Code(), len(r.Answer.Refusal.Holders))
	}
	var snapshot bytes.Buffer
	if _, err := c.state.WriteTo(&snapshot); err != nil || snapshot.Len() < 10<<20 {
		t.Fatalf("a snapshot of %d bytes, %v", snapshot.Len(), err)
	}
	again, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel)
	failIf(t, err != nil || hash(t, again) != hash(t, c.state), "read back: %v", err)
}

// A snapshot with a repeated record is refused, though its sum is right.
func TestSnapshotSaysNothingTwice(t *testing.T) {
	c := newCell(t)
	a := c.session("a")
	c.session("b")
	for _, principal := range []string{"a", "b"} {
		c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(a), Principal: principal, Quota: api.Quota{Nodes: 5}}}), api.OK)
	}
	var b bytes.Buffer
	must(c.state.WriteTo(&b))(t)
	title, records := split(b.Bytes())
	stopIf(t, !bytes.Equal(join(title, records), b.Bytes()), "the test does not know the form of a snapshot")
	// header, two sessions, three nodes, two quotas
	for i, j := range map[int]int{1: 2, 2: 1, 4: 5, 6: 7, 7: 6} {
		twice := slices.Clone(records)
		twice[i] = twice[j]
		if _, err := raftfsm.ReadState(bytes.NewReader(join(title, twice)), raftfsm.MaxLevel); api.CodeOf(err) != api.Corrupt {
			t.Errorf("record %d instead of %d: %v", j, i, err)
		}
	}
}

// split takes a snapshot apart, without its sum.
func split(snapshot []byte) (title []byte, records [][]byte) {
	end := bytes.IndexByte(snapshot, '\n') + 1
	title, rest := snapshot[:end], snapshot[end:len(snapshot)-sha256.Size]
	for len(rest) > 0 {
		size, n := binary.Uvarint(rest)
		records = append(records, rest[n:n+int(size)])
		rest = rest[n+int(size):]
	}
	return title, records
}

func join(title []byte, records [][]byte) []byte {
	snapshot := bytes.Clone(title)
	for _, r := range records {
		snapshot = append(binary.AppendUvarint(snapshot, uint64(len(r))), r...)
	}
	sum := sha256.Sum256(snapshot)
	return append(snapshot, sum[:]...)
}

// Each step of a transaction takes the rights that count when the command is applied: to read or write what a
// condition is about, or the directory where it would be; and to write what is changed.
func TestTxnTakesRights(t *testing.T) {
	c := newCell(t)
	owner, stranger := c.session("owner"), c.session("stranger")
	list, _ := c.file(owner, "/acl/owner")
	c.want(c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(owner), Node: list, Contents: []byte("owner\n")}}), api.OK)
	create := func(name api.Name, kind api.Kind, acl api.ACL) {
		t.Helper()
		c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(owner), Name: name, Create: api.MustCreate, Kind: kind, ACL: acl}}), api.OK)
	}
	create("/dark", api.Directory, api.ACL{Read: "owner", Write: "owner", Change: "everyone"})
	create("/dark/none", api.File, api.ACL{})
	create("/dark/read", api.File, api.ACL{Read: "everyone"})
	create("/dark/write", api.File, api.ACL{Write: "everyone"})
	absent := api.Generation(0)
	looks := func(name api.Name) []raftfsm.Condition {
		return []raftfsm.Condition{{Name: name, Content: &absent}, {Name: name, Exists: true}, {Name: name, Instance: 1}}
	}
	try := func(by api.SessionID, c0 *raftfsm.Txn) api.Code {
		c0.Mutation = c.mutation(by)
		return c.apply(raftfsm.Command{Txn: c0}).Code()
	}
	for name, want := range map[api.Name]api.Code{
		"/dark/none": api.PermissionDenied, "/dark/absent": api.PermissionDenied, "/dark/none/x": api.PermissionDenied,
		"/dark/read": api.GenerationMismatch, "/dark/write": api.GenerationMismatch, "/absent": api.GenerationMismatch, "/absent/x": api.GenerationMismatch,
	} {
		for _, condition := range looks(name) {
			got := try(stranger, &raftfsm.Txn{Conditions: []raftfsm.Condition{condition}})
			node, there := c.state.Tree.Get(name)
			holds := want != api.PermissionDenied && (condition.Exists && there || condition.Content != nil && !there || there && condition.Instance == node.Instance)
			if got != want && (got != api.OK || !holds) {
				t.Errorf("a stranger's condition %+v: %v, want %v", condition, got, want)
			}
			if got := try(owner, &raftfsm.Txn{Conditions: []raftfsm.Condition{condition}}); got == api.PermissionDenied {
				t.Errorf("the owner's condition %+v: %v", condition, got)
			}
		}
	}
	for _, o := range []raftfsm.Operation{
		{Name: "/dark/none", Create: api.MayCreate}, {Name: "/dark/read", Create: api.MayCreate}, {Name: "/dark/new", Create: api.MayCreate},
		{Name: "/dark/new", Create: api.MustCreate}, {Name: "/dark/none", Delete: true}, {Name: "/dark/read", Delete: true},
	} {
		if got := try(stranger, &raftfsm.Txn{Operations: []raftfsm.Operation{{Name: "/dark/write", Contents: []byte("x")}, o}}); got != api.PermissionDenied {
			t.Errorf("a stranger's operation %+v: %v", o, got)
		}
	}
	if n, _ := c.state.Tree.Get("/dark/write"); len(n.Contents) > 0 {
		t.Errorf("what a refused transaction has written stays: %q", n.Contents)
	}
	if got := try(stranger, &raftfsm.Txn{Operations: []raftfsm.Operation{{Name: "/dark/write", Delete: true}}}); got != api.OK {
		t.Errorf("a stranger deletes what it may write: %v", got)
	}
}

// A transaction does not open what it writes: an ephemeral file dies with those that have it open. One that is being removed is
// neither there nor absent.
func TestTxnAndEphemeralFiles(t *testing.T) {
	c := newCell(t)
	owner, writer := c.session("a"), c.session("b")
	r := c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(owner), Name: "/e", Create: api.MustCreate, Kind: api.File, Ephemeral: true}})
	c.want(r, api.OK)
	txn := func(conditions []raftfsm.Condition, operations ...raftfsm.Operation) raftfsm.Result {
		return c.apply(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.mutation(writer), Conditions: conditions, Operations: operations}})
	}
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Create: api.MayCreate, Contents: []byte("x")}), api.OK)
	node, _ := c.state.Tree.Get("/e")
	failIf(t, len(node.Openers) != 1 || node.Openers[0].Session != owner, "open in %v", node.Openers)
	closing := raftfsm.Close{Mutation: c.mutation(owner), Node: node.Ref(), Handle: node.Openers[0].Handle}
	c.want(c.apply(raftfsm.Command{Close: &closing}), api.OK)
	absent := api.Generation(0)
	for _, one := range []raftfsm.Condition{{Content: &absent}, {Content: &node.Content}, {Instance: node.Instance}, {Exists: true}} {
		one.Name = "/e"
		c.want(txn([]raftfsm.Condition{one}), api.GenerationMismatch)
	}
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Create: api.MayCreate}), api.Exists)
	c.want(txn(nil, raftfsm.Operation{Name: "/e", Delete: true}), api.NotFound)
	c.want(c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: []namespace.Ref{node.Ref()}}}), api.OK)
	c.want(txn([]raftfsm.Condition{{Name: "/e", Content: &absent}}, raftfsm.Operation{Name: "/e", Create: api.MustCreate}), api.OK)
}

// use takes the lock and releases it.
func (c *cell) use(lock namespace.Ref, by api.SessionID, h api.HandleID) api.Generation {
	c.t.Helper()
	token := c.acquire(lock, c.claim(by, h))[0].Answer.Generation
	r := c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(by), Lock: lock, Handle: h, Generation: token}})
	stopIf(c.t, token == 0 || r.Code() != api.OK, "acquired with token %d, and released: %v", token, r.Err())
	return token
}

// ended returns the holdings of a node's lock that are remembered.
func (c *cell) ended(name api.Name) []*api.Holding {
	c.t.Helper()
	n, ok := c.state.Tree.Get(name)
	stopIf(c.t, !ok, "%q is not there", name)
	return c.state.Ended(n)
}

// A state that remembers that two held a lock at once, or what cannot be, is corrupt: no replica starts from it.
func TestHoldingsThatCannotBe(t *testing.T) {
	holding := func(edit func(*api.Holding)) *api.Holding {
		h := &api.Holding{Session: 1, Mode: api.Exclusive, Generation: 2, Until: 3, End: api.ByClose}
		edit(h)
		return h
	}
	for name, list := range map[string][]*api.Holding{
		"two at once": {holding(func(h *api.Holding) { h.Until = 5 }), holding(func(h *api.Holding) { h.Generation, h.Until = 4, 6 })},
		"one twice":   {holding(func(*api.Holding) {}), holding(func(*api.Holding) {})},
		"shared":      {holding(func(h *api.Holding) { h.Until = 4 }), holding(func(h *api.Holding) { h.Generation, h.Until, h.Mode = 4, 6, api.Shared })},
		"goes on":     {holding(func(h *api.Holding) { h.Until = 0 })},
		"no end":      {holding(func(h *api.Holding) { h.End = 0 })},
		"no mode":     {holding(func(h *api.Holding) { h.Mode = 0 })},
		"late":        {holding(func(h *api.Holding) { h.Until = 1 << 40 })},
		"held now":    {holding(func(*api.Holding) {})},
		"nobody's":    nil,
	} {
		c := newCell(t)
		by := c.session("by")
		file, h := c.file(by, "/f")
		for range 3 {
			c.file(c.session(name), "/g")
		}
		token := c.acquire(file, c.claim(by, h))[0].Answer.Generation
		if name == "held now" {
			list[0].Until = token
		}
		at := api.Name("/f")
		if list == nil {
			at, list = "/none", []*api.Holding{holding(func(*api.Holding) {})}
		}
		good := holding(func(h *api.Holding) { h.Generation, h.Until = 1, 1 })
		if raftfsm.AddPast(&c.state, "/g", good); c.state.Check() != nil {
			t.Fatalf("%s: %v", name, c.state.Check())
		}
		for _, one := range list {
			raftfsm.AddPast(&c.state, at, one)
		}
		var snapshot bytes.Buffer
		must(c.state.WriteTo(&snapshot))(t)
		_, err := raftfsm.ReadState(&snapshot, raftfsm.MaxLevel)
		fails(t, err, api.Corrupt, name, "it is read")
	}
}

// What is restored from a backup has no history, and a backup has none.
func TestBackupsHaveNoHistory(t *testing.T) {
	c := newCell(t)
	by := c.session("by")
	file, h := c.file(by, "/f")
	c.use(file, by, h)
	backup := c.state.ForBackup()
	n, _ := backup.Tree.Get("/f")
	if got := backup.Ended(n); len(got) != 0 || len(c.ended("/f")) != 1 {
		t.Errorf("the backup has %+v, and the cell %+v", got, c.ended("/f"))
	}
	report(t, backup.Check())
}
