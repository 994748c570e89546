package raftfsm_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// The model covers all of this too; these tests say it more plainly.

func (c *cell) want(r raftfsm.Result, code api.Code) raftfsm.Result {
	c.t.Helper()
	if r.Code() != code {
		c.t.Fatalf("answered %v (%v), want %v", r.Code(), r.Err(), code)
	}
	return r
}

func (c *cell) write(id api.SessionID, name api.Name, contents string) raftfsm.Result {
	c.t.Helper()
	node, ok := c.state.Tree.Get(name)
	if !ok {
		c.t.Fatalf("%q is gone", name)
	}
	return c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(id), Node: node.Ref(), Contents: []byte(contents)}})
}

// held returns a lock that session a holds, its handle and its token.
func (c *cell) held(a api.SessionID) (lock namespace.Ref, h api.HandleID, token api.Generation) {
	c.t.Helper()
	lock, h = c.file(a, "/lock")
	r := c.acquire(lock, c.claim(a, h))
	if r[0].Answer.Code() != api.OK {
		c.t.Fatal(r[0].Answer.Err())
	}
	return lock, h, r[0].Answer.Generation
}

// An invalid name is answered: it has no parent with an ACL to check, and no
// quotas above it.
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

// The refusal of a precondition is kept as the answer: a retry must not do the command if the lock
// is held again (decision 13; Chubby §2.6, SetSequencer).
func TestUnmetPreconditionIsKept(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	lock, _, token := c.held(a)
	file, _ := c.file(b, "/file")
	conditional := func(p raftfsm.Precondition) raftfsm.Command {
		return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(b), Node: file, Contents: []byte("x"), Preconditions: []raftfsm.Precondition{p}}}
	}
	right := raftfsm.Precondition{Lock: lock.Name, Mode: api.Exclusive, Generation: token}
	wrong := []raftfsm.Precondition{right, right, right, right}
	wrong[0].Lock, wrong[1].Mode, wrong[2].Generation, wrong[3].Generation = "/none", api.Shared, token-1, token+1
	for _, p := range wrong {
		c.want(c.apply(conditional(p)), api.BadSequencer)
	}
	written := c.apply(conditional(right))
	c.want(written, api.OK)
	_, h := c.file(b, "/lock")
	early := conditional(raftfsm.Precondition{Lock: lock.Name, Mode: api.Exclusive, Generation: api.Generation(c.state.Counter + 1)})
	c.want(c.apply(early), api.BadSequencer)
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: a, Reason: api.ByClose}}}})
	claim := c.claim(b, h)
	claim.Mutation.Outstanding = []api.RequestNumber{early.SetContents.Mutation.Number, claim.Mutation.Number}
	if r := c.acquire(lock, claim)[0]; r.Answer.Code() != api.OK {
		t.Fatal(r.Answer.Err())
	}
	if err := c.state.CheckPrecondition(early.SetContents.Preconditions[0]); err != nil {
		t.Fatalf("the precondition should be met by now: %v", err)
	}
	c.want(c.apply(early), api.BadSequencer)
	if n, _ := c.state.Tree.Get("/file"); n.Content != written.Stat.Content {
		t.Errorf("written again, as generation %d, not only as %d", n.Content, written.Stat.Content)
	}
}

// A retry must not repeat the grant of a lock that is being revoked: its client
// may have acknowledged the revocation already, and would rely on the lock
// permanently (decisions 10 and 13).
func TestRevokedGrantIsNotRepeated(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	lock, h := c.file(a, "/lock")
	claim := c.claim(a, h)
	token := c.acquire(lock, claim)[0].Answer.Generation
	r := c.want(c.apply(raftfsm.Command{Revoke: &raftfsm.Revoke{Mutation: c.mutation(b), Lock: lock, Why: "stuck"}}), api.OK)
	if len(r.Revoked) != 1 || r.Revoked[0].Generation != token || len(r.Free) > 0 {
		t.Fatalf("%+v", r)
	}
	if again := c.acquire(lock, claim)[0]; again.Answer.Code() != api.LockLost {
		t.Errorf("the retry of a revoked grant: %+v", again)
	}
	condition := raftfsm.Precondition{Lock: lock.Name, Mode: api.Exclusive, Generation: token}
	if err := c.state.CheckPrecondition(condition); api.CodeOf(err) != api.BadSequencer {
		t.Errorf("the sequencer of a revoked lock: %v", err)
	}
	_, hb := c.file(b, "/lock")
	next := c.claim(b, hb)
	if r := c.acquire(lock, next)[0]; !r.Pending {
		t.Errorf("while the lock is still held: %+v", r)
	}
	evict := raftfsm.Evict{Lock: lock, Generation: token, Holders: []namespace.Owner{{Session: a, Handle: h}}, Successions: []raftfsm.Succession{{Lock: lock, Claims: []raftfsm.Claim{next}}}}
	if r := c.apply(raftfsm.Command{Evict: &evict}); len(r.Claims) != 1 || r.Claims[0].Answer.Generation <= token {
		t.Errorf("handed on: %+v", r)
	}
	c.want(c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(a), Lock: lock, Handle: h, Generation: token}}), api.NotHeld)
}

// No request of a terminating session is done, also none that waited, and the
// sequencers of its locks are invalid; but its locks are not free (decision
// 10).
func TestTerminatingSession(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	lock, h, token := c.held(a)
	terminate := func(by, target api.SessionID, why string) raftfsm.Result {
		return c.apply(raftfsm.Command{Terminate: &raftfsm.Terminate{Mutation: c.mutation(by), Target: target, Why: why}})
	}
	c.want(terminate(b, 999, "stuck"), api.NotFound)
	c.want(terminate(b, a, strings.Repeat("x", api.MaxReason+1)), api.InvalidArgument)
	if r := c.want(terminate(b, a, "stuck"), api.OK); !slices.Equal(r.Terminating, []api.SessionID{a}) {
		t.Errorf("%+v", r)
	}
	c.want(c.apply(raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(a), Lock: lock, Handle: h, Generation: token}}), api.SessionExpired)
	if err := c.state.CheckPrecondition(raftfsm.Precondition{Lock: lock.Name, Mode: api.Exclusive, Generation: token}); api.CodeOf(err) != api.BadSequencer {
		t.Errorf("the sequencer of a terminating session: %v", err)
	}
	_, hb := c.file(b, "/lock")
	if r := c.acquire(lock, c.claim(b, hb))[0]; !r.Pending {
		t.Errorf("the lock of a terminating session: %+v", r)
	}
	end := raftfsm.EndSessions{Ends: []raftfsm.End{{Session: a, Reason: api.ByOperator, Acknowledged: true}}}
	if r := c.apply(raftfsm.Command{EndSessions: &end}); len(r.Delayed) > 0 || !slices.Equal(r.Free, []api.Name{"/lock"}) {
		t.Errorf("after its client acknowledged the end: %+v", r)
	}
	for _, list := range []string{"b\n", "*\n"} { // a client's own principal's sessions, or all with the right to change the root
		c.want(c.write(b, "/acl/everyone", "b\n"), api.OK)
		d := c.session("d")
		c.want(terminate(d, b, "stuck"), api.PermissionDenied)
		c.want(terminate(d, d, "enough"), api.OK)
		c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: d, Reason: api.ByOperator}}}})
		c.want(c.write(b, "/acl/everyone", list), api.OK)
	}
}

// A quota refuses what needs more room, and nothing else.
func TestQuotasOfPrincipals(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	quota := func(q api.Quota) {
		c.want(c.apply(raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: c.mutation(b), Principal: "a", Quota: q}}), api.OK)
	}
	c.file(a, "/f")
	c.file(a, "/g")
	c.want(c.write(a, "/f", "0123456789"), api.OK)
	quota(api.Quota{Nodes: 2, Bytes: 12, Sessions: 1})
	create := func(id api.SessionID) raftfsm.Command {
		return raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(id), Name: "/h", Create: api.MayCreate}}
	}
	c.want(c.apply(create(a)), api.QuotaExceeded)
	c.want(c.write(b, "/f", "0123456789abc"), api.QuotaExceeded) // it counts for its creator
	c.want(c.write(b, "/f", "0123456789ab"), api.OK)
	second := raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte("a2"), Principal: "a", Lease: time.Second}}
	c.want(c.apply(second), api.QuotaExceeded)
	quota(api.Quota{Nodes: 1, Bytes: 1, Sessions: 1})
	c.want(c.write(a, "/f", "0123456789a"), api.OK) // less than before, though still too much
	c.want(c.write(a, "/f", "abcdefghijk"), api.OK)
	node, _ := c.state.Tree.Get("/g")
	c.want(c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(a), Node: node.Ref()}}), api.OK)
	c.want(c.apply(create(b)), api.OK)
	quota(api.Quota{})
	c.want(c.apply(second), api.OK)
	for principal := range c.state.Quotas() {
		t.Errorf("%q has a quota of zeros", principal)
	}
}

// A replica can read every snapshot that it writes: a lock may have any number
// of holders, and their answers are kept. An answer names only some of the
// holders.
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
		if err := read.Restore(n); err != nil {
			t.Fatal(err)
		}
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
	if err != nil || hash(t, again) != hash(t, c.state) {
		t.Errorf("read back: %v", err)
	}
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
	if _, err := c.state.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	title, records := split(b.Bytes())
	if again := join(title, records); !bytes.Equal(again, b.Bytes()) {
		t.Fatal("the test does not know the form of a snapshot")
	}
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

// Chubby §2.3: only a client that may write a directory may create nodes in it.
func TestCreateNeedsTheDirectory(t *testing.T) {
	c := newCell(t)
	a, b := c.session("a"), c.session("b")
	create := func(id api.SessionID, name api.Name, kind api.Kind, acl api.ACL) raftfsm.Result {
		return c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(id), Name: name, Create: api.MayCreate, Kind: kind, ACL: acl}})
	}
	c.want(create(a, "/acl/mine", api.File, api.ACL{}), api.OK)
	c.want(c.write(a, "/acl/mine", "a\n"), api.OK)
	c.want(create(a, "/d", api.Directory, api.ACL{Write: "mine"}), api.OK)
	c.want(create(b, "/d/f", api.File, api.ACL{}), api.PermissionDenied)
	c.want(create(a, "/d/f", api.File, api.ACL{Read: "none"}), api.NotFound)
	if r := c.want(create(a, "/d/f", api.File, api.ACL{}), api.OK); r.Stat.ACL.Write != "mine" || !r.Created {
		t.Errorf("%+v", *r.Stat)
	}
}

// A dying directory is reported again when its last child is removed, by any
// operation: otherwise the master would never remove it (Chubby §2.3, decision
// 11).
func TestDyingDirectoryGoesWithItsLastChild(t *testing.T) {
	for _, ephemeral := range []bool{true, false} {
		c := newCell(t)
		a, b := c.session("a"), c.session("b")
		open := func(id api.SessionID, name api.Name, kind api.Kind, ephemeral bool) namespace.Ref {
			r := c.want(c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: c.mutation(id), Name: name, Create: api.MayCreate, Kind: kind, Ephemeral: ephemeral}}), api.OK)
			return namespace.Ref{Name: name, Instance: r.Stat.Instance}
		}
		dir, child := open(a, "/d", api.Directory, true), open(b, "/d/f", api.File, ephemeral)
		end := func(id api.SessionID) raftfsm.Result {
			return c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id, Reason: api.ByExpiry}}}})
		}
		if r := c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: end(a).Dying}}); len(r.Changes)+len(r.Dying) > 0 {
			t.Fatalf("a directory with a child was removed: %+v", r)
		}
		var r raftfsm.Result
		if ephemeral {
			r = c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: end(b).Dying}})
		} else {
			r = c.apply(raftfsm.Command{Delete: &raftfsm.Delete{Mutation: c.mutation(b), Node: child}})
		}
		if want := []namespace.Change{{Kind: namespace.Removed, Node: child, Parent: dir, Generation: child.Instance}}; !slices.Equal(r.Changes, want) || !slices.Equal(r.Dying, []namespace.Ref{dir}) {
			t.Errorf("changes %+v, dying %+v", r.Changes, r.Dying)
		}
		if r := c.apply(raftfsm.Command{Remove: &raftfsm.Remove{Nodes: r.Dying}}); len(r.Changes) != 1 {
			t.Errorf("%+v", r)
		}
	}
}
