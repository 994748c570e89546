package namespace_test

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
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
	if err := c.tree.Check(); err != nil {
		t.Error(err)
	}
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
	if _, err := c.tree.Open(file, bob); err != nil {
		t.Fatal(err)
	}
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
