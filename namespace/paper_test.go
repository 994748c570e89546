package namespace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// Chubby §2.3: an instance number, greater than that of any previous node with
// the same name. The caller's counter makes it greater; the tree makes sure
// that a reference to the old instance does not reach the new one (§2.6).
func TestPaperInstanceNumber(t *testing.T) {
	c := newCell(t)
	first := c.create("/f", namespace.Spec{}).Ref()
	c.want(c.tree.Delete(first, alice), api.OK)
	_, err := c.tree.Resolve(first)
	c.want(err, api.HandleClosed)
	second := c.create("/f", namespace.Spec{}).Ref()
	if second.Instance <= first.Instance {
		t.Errorf("instance %d after %d", second.Instance, first.Instance)
	}
	_, err = c.tree.Resolve(first)
	c.want(err, api.HandleClosed)
	_, err = c.tree.SetContents(first, namespace.Write{Contents: []byte("x")}, c.drawGeneration)
	c.want(err, api.HandleClosed)
	_, err = c.acquire(first, alice, api.Shared, 0)
	c.want(err, api.HandleClosed)
	_, err = c.tree.Close(first, alice)
	c.want(err, api.HandleClosed)
	if n, err := c.tree.Resolve(second); err != nil || n.Content != second.Instance || n.ACLs != second.Instance || n.Lock != 0 {
		t.Errorf("a new node begins as %+v, %v", n, err)
	}
}

// Chubby §2.3: a content generation number that increases when the file's
// contents are written, and a checksum of the contents by which clients may
// tell whether files differ. §2.6: the caller of SetContents may demand the
// present generation.
func TestPaperContentGenerationAndChecksum(t *testing.T) {
	c := newCell(t)
	f := c.create("/f", namespace.Spec{Contents: []byte("one")})
	g := c.create("/g", namespace.Spec{})
	one := f.Content
	next, err := c.tree.SetContents(f.Ref(), namespace.Write{Contents: []byte("two"), IfContent: &one}, c.drawGeneration)
	if err != nil || next.Content <= one || next.Checksum == f.Checksum || f.Content != one || string(f.Contents) != "one" {
		t.Errorf("after a write: %+v, before: %+v, %v", next, f, err)
	}
	_, err = c.tree.SetContents(f.Ref(), namespace.Write{Contents: []byte("three"), IfContent: &one}, c.drawGeneration)
	if e := c.want(err, api.GenerationMismatch); e.Current != next.Content {
		t.Errorf("the contents are at %d; the error says %d", next.Content, e.Current)
	}
	same, err := c.tree.SetContents(g.Ref(), namespace.Write{Contents: []byte("two")}, c.drawGeneration)
	if err != nil || same.Checksum != next.Checksum {
		t.Errorf("equal contents with checksums %x and %x, %v", same.Checksum, next.Checksum, err)
	}
	again, err := c.tree.SetContents(g.Ref(), namespace.Write{Contents: []byte("two")}, c.drawGeneration)
	if err != nil || again.Content <= same.Content {
		t.Errorf("the same contents written again are at %d, %v", again.Content, err)
	}
	want := api.Stat{
		Kind: api.File, Instance: g.Instance, Content: again.Content, ACLs: g.Instance, Checksum: next.Checksum, Size: 3, ACL: rootACL,
	}
	if got := again.Stat(); got != want {
		t.Errorf("metadata %+v, want %+v", got, want)
	}
	dir := c.create("/d", namespace.Spec{Kind: api.Directory})
	_, err = c.tree.SetContents(dir.Ref(), namespace.Write{}, c.drawGeneration)
	c.want(err, api.IsDirectory)
}

// Chubby §2.3: a lock generation number that increases when the node's lock
// transitions from free to held; §2.4: any number of clients hold it in shared
// mode, or one in exclusive mode. Every node can be a lock, a directory too.
func TestPaperLocksAreSharedOrExclusive(t *testing.T) {
	for _, spec := range []namespace.Spec{{Kind: api.File}, {Kind: api.Directory}} {
		c := newCell(t)
		lock := c.create("/l", spec).Ref()
		first := c.mustAcquire(lock, alice, api.Exclusive, time.Minute)
		for _, mode := range []api.LockMode{api.Shared, api.Exclusive} {
			_, err := c.acquire(lock, bob, mode, 0)
			e := c.want(err, api.LockHeld)
			if want := (api.Holder{Session: 1}); !slices.Equal(e.Holders, []api.Holder{want}) {
				t.Errorf("held by %+v", e.Holders)
			}
		}
		_, err := c.acquire(lock, alice, api.Exclusive, 0)
		c.want(err, api.LockHeld) // not recursive
		_, err = c.tree.Release(lock, alice, first)
		c.want(err, api.OK)

		second := c.mustAcquire(lock, bob, api.Shared, 0)
		if joined := c.mustAcquire(lock, carol, api.Shared, 0); joined != second || second <= first {
			t.Errorf("generations: %d exclusive, then %d shared, joined in %d", first, second, joined)
		}
		_, err = c.acquire(lock, alice, api.Exclusive, 0)
		if e := c.want(err, api.LockHeld); len(e.Holders) != 2 {
			t.Errorf("held by %+v", e.Holders)
		}
		_, err = c.tree.Release(lock, bob, first)
		c.want(err, api.NotHeld) // the generation of an earlier grant
		_, err = c.tree.Release(lock, alice, second)
		c.want(err, api.NotHeld)
		for _, by := range []namespace.Owner{bob, carol} {
			d, err := c.tree.Release(lock, by, second)
			c.want(err, api.OK)
			c.wantDropped(d, namespace.Dropped{Free: []api.Name{"/l"}})
		}
		if n := c.node("/l"); n.Lock != second || n.Mode != 0 || c.tree.Counts().Locks != 0 {
			t.Errorf("the free lock is %+v", n)
		}
	}
}

// Chubby §2.4: a lock that its holder releases in the normal way is at once
// available to others.
func TestPaperNormalReleaseFreesAtOnce(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	for _, let := range []func() namespace.Dropped{
		func() namespace.Dropped { d, _ := c.tree.Release(lock, alice, c.node("/l").Lock); return d },
		func() namespace.Dropped { d, _ := c.tree.Close(lock, alice); return d },
		func() namespace.Dropped { return c.tree.DropSession(alice.Session, false, nil) },
	} {
		c.mustAcquire(lock, alice, api.Exclusive, time.Minute)
		c.wantDropped(let(), namespace.Dropped{Free: []api.Name{"/l"}})
		g := c.mustAcquire(lock, bob, api.Exclusive, 0)
		must(c.tree.Release(lock, bob, g))(t)
	}
}

// Chubby §2.4: if a lock becomes free because its holder has failed, no client
// may claim it for the lock-delay that the holder chose. The delay stays with
// the name.
func TestPaperLockDelay(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	other := c.create("/m", namespace.Spec{}).Ref()
	c.mustAcquire(lock, alice, api.Exclusive, time.Minute)
	c.mustAcquire(other, alice, api.Exclusive, 0)
	d := c.tree.DropSession(alice.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{Delayed: []api.Name{"/l"}, Free: []api.Name{"/m"}}) // a delay of 0 is no delay
	delay, _ := c.tree.Delay("/l")
	if delay.For != time.Minute || delay.Mode != api.Exclusive {
		t.Fatalf("the delay is %+v", delay)
	}
	for _, mode := range []api.LockMode{api.Exclusive, api.Shared} {
		_, err := c.acquire(lock, bob, mode, 0)
		c.want(err, api.LockDelayed)
	}
	c.want(c.tree.Delete(lock, bob), api.OK)
	lock = c.create("/l", namespace.Spec{}).Ref()
	_, err := c.acquire(lock, bob, api.Shared, 0)
	c.want(err, api.LockDelayed)
	if c.tree.EndDelay("/l", delay.ID+1) || c.tree.EndDelay("/m", delay.ID) || !c.tree.EndDelay("/l", delay.ID) || c.tree.EndDelay("/l", delay.ID) {
		t.Error("the delay must end by its own ID, and only once")
	}
	c.mustAcquire(lock, bob, api.Exclusive, 0)
}

// Chubby §2.3: ephemeral files are deleted if no client has them open, and
// ephemeral directories in addition only when they are empty.
func TestPaperEphemeralNodes(t *testing.T) {
	c := newCell(t)
	dir := c.create("/d", namespace.Spec{Kind: api.Directory, Ephemeral: true, Opener: alice}).Ref()
	file := c.create("/d/f", namespace.Spec{Ephemeral: true, Opener: bob}).Ref()
	must(c.tree.Open(file, carol))(t)
	d := c.tree.DropSession(bob.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{}) // carol still has it open
	if c.tree.Remove(file) || c.tree.Remove(dir) {
		t.Fatal("an open node was removed")
	}
	d, err := c.tree.Close(dir, alice)
	c.want(err, api.OK)
	c.wantDropped(d, namespace.Dropped{Dying: []namespace.Ref{dir}})
	if c.tree.Remove(dir) {
		t.Fatal("a directory that is not empty was removed")
	}

	// The names of dying nodes are taken until they are removed.
	for _, err := range []error{
		func() error { _, err := c.tree.Create("/d", namespace.Spec{Kind: api.File}, 99); return err }(),
		func() error { _, err := c.tree.Create("/d/g", namespace.Spec{Kind: api.File}, 99); return err }(),
		func() error { _, err := c.tree.Open(dir, alice); return err }(),
		func() error { _, err := c.acquire(dir, alice, api.Shared, 0); return err }(),
	} {
		if e := c.want(err, api.Exists); !strings.Contains(e.Message, "is being removed") {
			t.Errorf("the message for a dying node: %s", e.Message)
		}
	}
	d, err = c.tree.Close(file, carol)
	c.want(err, api.OK)
	c.wantDropped(d, namespace.Dropped{Dying: []namespace.Ref{file}})
	if !c.tree.Remove(file) || !c.tree.Remove(dir) || c.tree.Remove(dir) {
		t.Fatal("dying nodes must be removed children first, and once")
	}
	if counts := c.tree.Counts(); counts != (namespace.Counts{Nodes: 1, Names: int64(len("all" + "some" + "few"))}) { // of the root
		t.Errorf("left: %+v", counts)
	}
}

// Chubby §2.3: any node can be deleted explicitly, also an ephemeral one that
// others have open; §2.6: not one that has children. And not one whose lock
// another handle holds, because that handle relies on it.
func TestPaperDelete(t *testing.T) {
	c := newCell(t)
	dir := c.create("/d", namespace.Spec{Kind: api.Directory}).Ref()
	file := c.create("/d/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	c.want(c.tree.Delete(namespace.Ref{Name: "", Instance: 1}, alice), api.PermissionDenied)
	c.want(c.tree.Delete(dir, bob), api.NotEmpty)
	g := c.mustAcquire(file, alice, api.Exclusive, time.Minute)
	c.want(c.tree.Delete(file, bob), api.LockHeld)
	c.want(c.tree.Delete(file, alice), api.OK)
	_, err := c.tree.Release(file, alice, g)
	c.want(err, api.HandleClosed)
	c.wantDropped(c.tree.DropSession(alice.Session, true, c.draw), namespace.Dropped{}) // the session owns nothing
	c.want(c.tree.Delete(dir, bob), api.OK)
	c.want(c.tree.Check(), api.OK)
}

// Chubby §2.3: unless overridden, a node inherits the ACL names of its parent
// directory on creation.
func TestPaperACLNamesAreInherited(t *testing.T) {
	c := newCell(t)
	c.create("/d", namespace.Spec{Kind: api.Directory, ACL: api.ACL{Write: "team"}})
	n := c.create("/d/f", namespace.Spec{ACL: api.ACL{Read: "own"}})
	if want := (api.ACL{Read: "own", Write: "team", Change: "few"}); n.ACL != want {
		t.Errorf("%+v, want %+v", n.ACL, want)
	}
}
