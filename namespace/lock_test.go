package namespace_test

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// A failed shared holder excludes only the modes that it excluded while it held
// the lock. Of several delays, the longest counts, from the latest failure.
func TestDelaysOfSharedHolders(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	g := c.mustAcquire(lock, alice, api.Shared, 9*time.Second)
	c.mustAcquire(lock, bob, api.Shared, 2*time.Second)
	c.mustAcquire(lock, carol, api.Shared, 5*time.Second)
	c.tree.DropSession(alice.Session, true, c.draw)
	first, _ := c.tree.Delay("/l")
	d := c.tree.DropSession(bob.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{Delayed: []api.Name{"/l"}})
	second, _ := c.tree.Delay("/l")
	if first.For != 9*time.Second || second.For != 9*time.Second || second.ID <= first.ID || second.Mode != api.Shared {
		t.Errorf("delays %+v, then %+v", first, second)
	}
	if c.tree.EndDelay("/l", first.ID) {
		t.Error("the EndDelay of the first failure has ended the delay of the second")
	}
	if joined := c.mustAcquire(lock, alice, api.Shared, 0); joined != g {
		t.Errorf("joined in generation %d, want %d", joined, g)
	}
	c.wantDropped(c.tree.DropSession(carol.Session, false, nil), namespace.Dropped{})
	rest, err := c.tree.Release(lock, alice, g)
	c.want(err, api.OK)
	c.wantDropped(rest, namespace.Dropped{}) // free, but delayed: the waiters are served when the delay ends
	_, err = c.acquire(lock, bob, api.Exclusive, 0)
	c.want(err, api.LockDelayed)
	if again := c.mustAcquire(lock, bob, api.Shared, 0); again <= g {
		t.Errorf("the lock was free, and is held again in generation %d", again)
	}
	c.want(c.tree.Check(), api.OK)
}

// After a failed exclusive holder, the delay stays exclusive until the last
// delay ends.
func TestExclusiveDelayStaysExclusive(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	c.mustAcquire(lock, alice, api.Shared, time.Second)
	c.tree.RestoreDelay("/l", namespace.Delay{ID: 1, Mode: api.Exclusive, For: time.Minute})
	c.tree.DropSession(alice.Session, true, c.draw)
	if d, _ := c.tree.Delay("/l"); d != (namespace.Delay{ID: c.counter, Mode: api.Exclusive, For: time.Minute}) {
		t.Errorf("the delay is %+v", d)
	}
}

// The holder of an ephemeral node's lock must have it open: otherwise the node
// could be removed while its lock is held.
func TestLockOfEphemeralNeedsItOpen(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	_, err := c.acquire(file, bob, api.Exclusive, 0)
	c.want(err, api.HandleClosed)
	must(c.tree.Open(file, bob))(t)
	c.mustAcquire(file, bob, api.Exclusive, time.Second)
	d := c.tree.DropSession(bob.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{Delayed: []api.Name{"/f"}})
}

// For a lock with many holders, the message names a few of them and the error
// has the list; the lock is listed once; and a caller may stop a list after its
// first element.
func TestManyHolders(t *testing.T) {
	c := newCell(t)
	first := c.create("/l", namespace.Spec{}).Ref()
	second := c.create("/m", namespace.Spec{}).Ref()
	for session := range api.SessionID(5) {
		c.mustAcquire(first, namespace.Owner{Session: session + 1}, api.Shared, 0)
		c.mustAcquire(second, namespace.Owner{Session: session + 1}, api.Shared, 0)
	}
	_, err := c.acquire(first, namespace.Owner{Session: 9}, api.Exclusive, 0)
	if e := c.want(err, api.LockHeld); len(e.Holders) != 5 || !strings.Contains(e.Message, "by s1, s2, s3, 2 more:") {
		t.Errorf("%d holders, %s", len(e.Holders), e.Message)
	}
	for what, list := range map[string]iter.Seq[*namespace.Node]{
		"locked": c.tree.Locked(""), "owned": c.tree.OwnedBy(3),
		"children": c.tree.Children("", ""), "locked at": c.tree.Locked("/l"),
	} {
		for n := range list {
			if n.Name != "/l" {
				t.Errorf("%s: the first is %q", what, n.Name)
			}
			break
		}
	}
}

// revoked returns a lock that is being taken away from alice and bob, who share
// it.
func revoked(t *testing.T) (c *cell, ref namespace.Ref, token api.Generation) {
	t.Helper()
	c = newCell(t)
	ref = c.create("/f", namespace.Spec{}).Ref()
	token = c.mustAcquire(ref, alice, api.Shared, time.Second)
	c.mustAcquire(ref, bob, api.Shared, time.Second)
	n, err := c.tree.Revoke(ref, refusal.Intervention{Why: "stuck"})
	c.want(err, api.OK)
	if n.Revoked == nil || n.Revoked.Why != "stuck" || len(n.Holders) != 2 || n.Lock != token {
		t.Fatalf("%+v", n)
	}
	return c, ref, token
}

// Decision 10: until its last holder has released it, a revoked lock excludes
// every other handle, also in shared mode.
func TestNobodyJoinsARevokedLock(t *testing.T) {
	c, ref, token := revoked(t)
	for _, mode := range []api.LockMode{api.Shared, api.Exclusive} {
		_, err := c.acquire(ref, carol, mode, 0)
		if e := c.want(err, api.LockHeld); len(e.Holders) != 2 || !strings.Contains(e.Message, "taken away") {
			t.Errorf("%v, %+v", err, e.Holders)
		}
	}
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{alice}), namespace.Dropped{Free: []api.Name{"/f"}})
	_, err := c.acquire(ref, alice, api.Shared, 0) // an evicted holder cannot join again either
	c.want(err, api.LockHeld)
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{bob}), namespace.Dropped{Free: []api.Name{"/f"}})
	if n := c.node("/f"); n.Revoked != nil || n.Mode != 0 || len(n.Holders) > 0 {
		t.Errorf("the free lock is still marked: %+v", n)
	}
	if next := c.mustAcquire(ref, carol, api.Exclusive, 0); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	c.want(c.tree.Check(), api.OK)
}

// A holder may release a revoked lock like any other, and so may its session;
// only a session that fails leaves a lock-delay (Chubby §2.4).
func TestHoldersLetGoOfARevokedLock(t *testing.T) {
	free := namespace.Dropped{Free: []api.Name{"/f"}}
	c, ref, token := revoked(t)
	d, err := c.tree.Release(ref, alice, token)
	c.want(err, api.OK)
	c.wantDropped(d, free)
	if n := c.node("/f"); n.Revoked == nil || n.Revoked.Why != "stuck" {
		t.Errorf("bob still holds the lock: %+v", n)
	}
	d, err = c.tree.Close(ref, bob)
	c.want(err, api.OK)
	c.wantDropped(d, free)
	if n := c.node("/f"); n.Revoked != nil {
		t.Errorf("the lock is free and still revoked: %+v", n)
	}

	c, ref, token = revoked(t)
	c.wantDropped(c.tree.DropSession(alice.Session, false, c.draw), free)
	c.wantDropped(c.tree.DropSession(bob.Session, true, c.draw), namespace.Dropped{Delayed: []api.Name{"/f"}})
	_, err = c.acquire(ref, carol, api.Exclusive, 0)
	c.want(err, api.LockDelayed)
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{alice, bob}), namespace.Dropped{}) // too late, and without effect
	c.want(c.tree.Check(), api.OK)
}

// An Evict takes effect only for the holders and the generation of that
// revocation, and not for a lock that is not revoked.
func TestEvictIsExact(t *testing.T) {
	c, ref, token := revoked(t)
	nothing := namespace.Dropped{}
	before := c.node("/f")
	c.wantDropped(c.tree.Evict(ref, token+1, []namespace.Owner{alice}), nothing)
	c.wantDropped(c.tree.Evict(ref, token, nil), nothing)
	c.wantDropped(c.tree.Evict(namespace.Ref{Name: "/f", Instance: 99}, token, []namespace.Owner{alice}), nothing)
	c.wantDropped(c.tree.Evict(namespace.Ref{Name: "x"}, token, []namespace.Owner{alice}), nothing)
	if c.node("/f") != before {
		t.Errorf("%+v has become %+v", before, c.node("/f"))
	}
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{carol, {}, {Session: alice.Session, Handle: 9}}), nothing)
	if n := c.node("/f"); len(n.Holders) != 2 {
		t.Errorf("%+v", n)
	}
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{alice, alice, carol, bob}), namespace.Dropped{Free: []api.Name{"/f"}})
	c.want(c.tree.Check(), api.OK)

	held := c.mustAcquire(ref, carol, api.Exclusive, 0)
	c.wantDropped(c.tree.Evict(ref, held, []namespace.Owner{carol}), nothing)
	if n := c.node("/f"); len(n.Holders) != 1 {
		t.Errorf("evicted from a lock that is not revoked: %+v", n)
	}
}

// A holder of an ephemeral node still has it open after it was evicted.
func TestEvictLeavesOpeners(t *testing.T) {
	c := newCell(t)
	ref := c.create("/e", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	token := c.mustAcquire(ref, alice, api.Exclusive, time.Second)
	must(c.tree.Revoke(ref, refusal.Intervention{Why: "stuck"}))(t)
	c.wantDropped(c.tree.Evict(ref, token, []namespace.Owner{alice}), namespace.Dropped{Free: []api.Name{"/e"}})
	if n := c.node("/e"); n.Dying() || len(n.Openers) != 1 {
		t.Errorf("%+v", n)
	}
	c.want(c.tree.Check(), api.OK)
	c.wantDropped(c.tree.DropSession(alice.Session, true, c.draw), namespace.Dropped{Dying: []namespace.Ref{ref}}) // without a delay
}

func TestRevokeRefuses(t *testing.T) {
	c := newCell(t)
	ref := c.create("/f", namespace.Spec{}).Ref()
	_, err := c.tree.Revoke(ref, refusal.Intervention{Why: "stuck"})
	c.want(err, api.NotHeld)
	c.mustAcquire(ref, alice, api.Exclusive, 0)
	_, err = c.tree.Revoke(ref, refusal.Intervention{Why: strings.Repeat("x", api.MaxReason+1)})
	c.want(err, api.InvalidArgument)
	_, err = c.tree.Revoke(namespace.Ref{Name: "/f", Instance: 99}, refusal.Intervention{Why: "stuck"})
	c.want(err, api.HandleClosed)
	if n := c.node("/f"); n.Revoked != nil {
		t.Errorf("%+v", n)
	}
	first, err := c.tree.Revoke(ref, refusal.Intervention{Why: strings.Repeat("x", api.MaxReason)})
	c.want(err, api.OK)
	again, err := c.tree.Revoke(ref, refusal.Intervention{Why: "another reason"})
	c.want(err, api.OK)
	if again != first {
		t.Errorf("revoked again: %+v", again)
	}
	c.want(c.tree.Delete(ref, bob), api.LockHeld)
	c.want(c.tree.Delete(ref, alice), api.OK) // its holder may delete it
	c.want(c.tree.Check(), api.OK)
}

// Evicting all holders takes time in proportion to their number, however many share the lock: no
// replica applies anything else meanwhile, and any user of the lock may have it revoked.
func TestEvictionOfVeryMany(t *testing.T) {
	const sessions, handles = 10, 1000
	c := newCell(t)
	ref := c.create("/f", namespace.Spec{}).Ref()
	root, node := *c.node(""), *c.node("/f")
	tree := namespace.New(root.ACL)
	c.want(tree.Restore(&root), api.OK)
	node.Mode, node.Lock, node.Revoked = api.Shared, node.Instance, &refusal.Intervention{Why: "stuck"}
	var owners []namespace.Owner
	for i := range sessions * handles {
		owner := namespace.Owner{Session: api.SessionID(i%sessions + 1), Handle: api.HandleID(i + 1)}
		owners = append(owners, owner)
		node.Holders = append(node.Holders, namespace.Holder{Owner: owner})
	}
	c.want(tree.Restore(&node), api.OK)
	began := time.Now()
	d := tree.Evict(ref, node.Lock, owners[sessions:])
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	c.wantDropped(d, namespace.Dropped{Free: []api.Name{"/f"}})
	c.want(tree.Check(), api.OK)
	c.wantDropped(tree.Evict(ref, node.Lock, owners), namespace.Dropped{Free: []api.Name{"/f"}, Vacant: []namespace.Vacancy{{Lock: ref, Generation: node.Lock}}})
	c.want(tree.Check(), api.OK)
}
