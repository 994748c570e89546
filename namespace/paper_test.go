package namespace_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// cell is a world for tests that know what should happen.
type cell struct {
	*testing.T
	world
}

func newCell(t *testing.T) *cell { return &cell{T: t, world: *newWorld()} }

var (
	alice = namespace.Owner{Session: 1, Handle: 1}
	bob   = namespace.Owner{Session: 2, Handle: 1}
	carol = namespace.Owner{Session: 3, Handle: 1}
)

func (c *cell) create(name api.Name, spec namespace.Spec) *namespace.Node {
	c.Helper()
	if spec.Kind == 0 {
		spec.Kind = api.File
	}
	n, err := c.tree.Create(name, spec, c.drawGeneration())
	if err != nil {
		c.Fatal(err)
	}
	return n
}

func (c *cell) acquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) (api.Generation, error) {
	return c.tree.Acquire(ref, namespace.Holder{Owner: by, Delay: delay, Reason: "a test", SinceUnix: 7}, mode, c.drawGeneration)
}

func (c *cell) mustAcquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) api.Generation {
	c.Helper()
	g, err := c.acquire(ref, by, mode, delay)
	if err != nil {
		c.Fatal(err)
	}
	return g
}

func (c *cell) node(name api.Name) *namespace.Node {
	c.Helper()
	n, ok := c.tree.Get(name)
	if !ok {
		c.Fatalf("%q is gone", name)
	}
	return n
}

func (c *cell) want(err error, code api.Code) *api.Error {
	c.Helper()
	if api.CodeOf(err) != code {
		c.Fatalf("got %v, want %v", err, code)
	}
	var e *api.Error
	errors.As(err, &e)
	return e
}

func (c *cell) wantDropped(got, want namespace.Dropped) {
	c.Helper()
	if !slices.Equal(got.Free, want.Free) || !slices.Equal(got.Delayed, want.Delayed) || !slices.Equal(got.Dying, want.Dying) {
		c.Fatalf("let go %+v, want %+v", got, want)
	}
}

// Chubby §2.3: an instance number, greater than that of any previous node with
// the same name. The caller's counter sees to "greater"; the tree to that an
// old instance is not taken for the new one (§2.6).
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
	_, err = c.tree.SetContents(first, []byte("x"), nil, c.drawGeneration)
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
// tell whether files differ. §2.6: SetContents may name the generation that the
// contents must have.
func TestPaperContentGenerationAndChecksum(t *testing.T) {
	c := newCell(t)
	f := c.create("/f", namespace.Spec{Contents: []byte("one")})
	g := c.create("/g", namespace.Spec{})
	one := f.Content
	next, err := c.tree.SetContents(f.Ref(), []byte("two"), &one, c.drawGeneration)
	if err != nil || next.Content <= one || next.Checksum == f.Checksum || f.Content != one || string(f.Contents) != "one" {
		t.Errorf("after a write: %+v, before: %+v, %v", next, f, err)
	}
	_, err = c.tree.SetContents(f.Ref(), []byte("three"), &one, c.drawGeneration)
	if e := c.want(err, api.GenerationMismatch); e.Current != next.Content {
		t.Errorf("the contents are at %d, says the error: %d", next.Content, e.Current)
	}
	same, err := c.tree.SetContents(g.Ref(), []byte("two"), nil, c.drawGeneration)
	if err != nil || same.Checksum != next.Checksum {
		t.Errorf("equal contents with checksums %x and %x, %v", same.Checksum, next.Checksum, err)
	}
	again, err := c.tree.SetContents(g.Ref(), []byte("two"), nil, c.drawGeneration)
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
	_, err = c.tree.SetContents(dir.Ref(), nil, nil, c.drawGeneration)
	c.want(err, api.IsDirectory)
}

// Chubby §2.3: a lock generation number that increases when the node's lock
// transitions from free to held; §2.4: any number of clients hold it in shared
// mode, or one in exclusive mode. Every node can be one, a directory too.
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
		c.want(err, api.NotHeld) // a generation long gone
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
		if _, err := c.tree.Release(lock, bob, g); err != nil {
			t.Fatal(err)
		}
	}
}

// Chubby §2.4: if a lock becomes free because its holder has failed, nobody may
// claim it for the lock-delay that the holder chose. It stays with the name.
func TestPaperLockDelay(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	other := c.create("/m", namespace.Spec{}).Ref()
	c.mustAcquire(lock, alice, api.Exclusive, time.Minute)
	c.mustAcquire(other, alice, api.Exclusive, 0)
	d := c.tree.DropSession(alice.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{Delayed: []api.Name{"/l"}, Free: []api.Name{"/m"}}) // a delay of 0 is none
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
		t.Error("the delay ends by its own ID, and once")
	}
	c.mustAcquire(lock, bob, api.Exclusive, 0)
}

// A failed shared holder excludes only those whom it excluded when it held the
// lock. Of several, the longest delay counts, from the latest failure.
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
		t.Error("the first failure's end has ended the second's delay")
	}
	if joined := c.mustAcquire(lock, alice, api.Shared, 0); joined != g {
		t.Errorf("joined in generation %d, want %d", joined, g)
	}
	c.wantDropped(c.tree.DropSession(carol.Session, false, nil), namespace.Dropped{})
	rest, err := c.tree.Release(lock, alice, g)
	c.want(err, api.OK)
	c.wantDropped(rest, namespace.Dropped{}) // free, but delayed: the end of the delay will tell
	_, err = c.acquire(lock, bob, api.Exclusive, 0)
	c.want(err, api.LockDelayed)
	if again := c.mustAcquire(lock, bob, api.Shared, 0); again <= g {
		t.Errorf("the lock was free, and is held again in generation %d", again)
	}
	if err := c.tree.Check(); err != nil {
		t.Error(err)
	}
}

// Chubby §2.3: ephemeral files are deleted if no client has them open, and
// ephemeral directories in addition only when they are empty.
func TestPaperEphemeralNodes(t *testing.T) {
	c := newCell(t)
	dir := c.create("/d", namespace.Spec{Kind: api.Directory, Ephemeral: true, Opener: alice}).Ref()
	file := c.create("/d/f", namespace.Spec{Ephemeral: true, Opener: bob}).Ref()
	if _, err := c.tree.Open(file, carol); err != nil {
		t.Fatal(err)
	}
	d := c.tree.DropSession(bob.Session, true, c.draw)
	c.wantDropped(d, namespace.Dropped{}) // carol has it open still
	if c.tree.Remove(file) || c.tree.Remove(dir) {
		t.Fatal("an open node was removed")
	}
	d, err := c.tree.Close(dir, alice)
	c.want(err, api.OK)
	c.wantDropped(d, namespace.Dropped{Dying: []namespace.Ref{dir}})
	if c.tree.Remove(dir) {
		t.Fatal("a directory was removed that is not empty")
	}

	// Until they are removed, their names are taken.
	for _, err := range []error{
		func() error { _, err := c.tree.Create("/d", namespace.Spec{Kind: api.File}, 99); return err }(),
		func() error { _, err := c.tree.Create("/d/g", namespace.Spec{Kind: api.File}, 99); return err }(),
		func() error { _, err := c.tree.Open(dir, alice); return err }(),
		func() error { _, err := c.acquire(dir, alice, api.Shared, 0); return err }(),
	} {
		if e := c.want(err, api.Exists); !strings.Contains(e.Message, "is being removed") {
			t.Errorf("of a dying node it is said that %s", e.Message)
		}
	}
	d, err = c.tree.Close(file, carol)
	c.want(err, api.OK)
	c.wantDropped(d, namespace.Dropped{Dying: []namespace.Ref{file}})
	if !c.tree.Remove(file) || !c.tree.Remove(dir) || c.tree.Remove(dir) {
		t.Fatal("dying nodes are removed, children first, and once")
	}
	if counts := c.tree.Counts(); counts != (namespace.Counts{Nodes: 1}) {
		t.Errorf("left: %+v", counts)
	}
}

// Chubby §2.3: any node can be deleted explicitly, an ephemeral one that others
// have open too; §2.6: not one that has children. And not one whose lock
// another holds, since that handle believes in it.
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
	c.wantDropped(c.tree.DropSession(alice.Session, true, c.draw), namespace.Dropped{}) // nothing is left of it
	c.want(c.tree.Delete(dir, bob), api.OK)
	if err := c.tree.Check(); err != nil {
		t.Error(err)
	}
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

// What holds the lock of an ephemeral node has it open: otherwise it could be
// removed under its holder.
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

// A counter that has gone back must not make a lock's generation go back with
// it.
func TestLockGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	g := c.mustAcquire(lock, alice, api.Exclusive, 0)
	if _, err := c.tree.Close(lock, alice); err != nil {
		t.Fatal(err)
	}
	for _, next := range []api.Generation{0, g - 1, g, api.MaxGeneration + 1} {
		_, err := c.tree.Acquire(lock, namespace.Holder{Owner: bob}, api.Exclusive, func() api.Generation { return next })
		c.want(err, api.Corrupt)
	}
	if n := c.node("/l"); n.Lock != g || len(n.Holders) > 0 {
		t.Errorf("a lock that was refused is %+v", n)
	}
}

// Nor the generations of contents and ACL names.
func TestContentGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	before := c.create("/f", namespace.Spec{})
	for _, next := range []api.Generation{0, before.Content - 1, before.Content, api.MaxGeneration + 1} {
		draw := func() api.Generation { return next }
		_, err := c.tree.SetContents(before.Ref(), []byte("x"), nil, draw)
		c.want(err, api.Corrupt)
		_, err = c.tree.SetACL(before.Ref(), api.ACL{Read: "r"}, nil, draw)
		c.want(err, api.Corrupt)
	}
	if c.node("/f") != before {
		t.Error("what was refused has changed the node")
	}
}

// One failed holder that excluded everybody does so until the last delay ends.
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

// A copy is a tree of its own: what is done to the one is not seen in the
// other, however many hold a lock or have a node open by then.
func TestCopiesGoTheirOwnWays(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	for handle := range api.HandleID(20) {
		join := func(tree *namespace.Tree, session api.SessionID) string {
			by := namespace.Holder{Owner: namespace.Owner{Session: session, Handle: handle}}
			_, opened := tree.Open(file, by.Owner)
			_, acquired := tree.Acquire(file, by, api.Shared, c.drawGeneration)
			if err := errors.Join(opened, acquired); err != nil {
				t.Fatal(err)
			}
			return dump(*tree)
		}
		other := c.tree
		one := join(&c.tree, 2)
		join(&other, 3)
		if is := dump(c.tree); is != one {
			t.Fatalf("with %d handles, a tree changed with its copy\nfrom %s\nto   %s", handle, one, is)
		}
	}
}

// A lock that many hold names a few of them in words, all of them in the error,
// and is one lock; a reader of a list may stop after the first.
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

// What comes out of a log is held to the limits that it was let in by.
func TestLimits(t *testing.T) {
	c := newCell(t)
	deepest := api.Name("")
	for range api.MaxDepth {
		deepest += "/d"
		c.create(deepest, namespace.Spec{Kind: api.Directory})
	}
	longest := "/" + api.Name(strings.Repeat("n", api.MaxPath-1))
	file := c.create(longest, namespace.Spec{ACL: api.ACL{Read: strings.Repeat("r", api.MaxACLName)}}).Ref()
	holder := namespace.Holder{Owner: alice, Delay: api.MaxLockDelay, Reason: strings.Repeat("r", api.MaxReason)}
	if _, err := c.tree.Acquire(file, holder, api.Shared, c.drawGeneration); err != nil {
		t.Fatal(err)
	}
	if err := c.tree.Check(); err != nil {
		t.Fatal(err)
	}

	create := func(name api.Name, spec namespace.Spec, instance api.Generation) error {
		_, err := c.tree.Create(name, spec, instance)
		return err
	}
	join := func(h namespace.Holder) error {
		_, err := c.tree.Acquire(file, h, api.Shared, c.drawGeneration)
		return err
	}
	for what, err := range map[string]error{
		"depth":    create(deepest+"/d", namespace.Spec{Kind: api.File}, 99),
		"name":     create(longest+"n", namespace.Spec{Kind: api.File}, 99),
		"ACL":      create("/f", namespace.Spec{Kind: api.File, ACL: api.ACL{Change: strings.Repeat("r", api.MaxACLName+1)}}, 99),
		"instance": create("/f", namespace.Spec{Kind: api.File}, api.MaxGeneration+1),
		"reason":   join(namespace.Holder{Owner: bob, Reason: strings.Repeat("r", api.MaxReason+1)}),
		"delay":    join(namespace.Holder{Owner: bob, Delay: api.MaxLockDelay + 1}),
	} {
		if !errors.Is(err, api.InvalidArgument) {
			t.Errorf("above the limit of %s: %v, want InvalidArgument", what, err)
		}
	}
}

// A copy may be read by many while the tree changes; the race detector watches.
func TestCopiesAreReadWhileTheTreeChanges(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	c.mustAcquire(lock, alice, api.Shared, time.Second)
	var readers sync.WaitGroup
	for i := range 50 {
		snapshot, was := c.tree, dump(c.tree)
		readers.Go(func() {
			if is := dump(snapshot); is != was {
				t.Errorf("snapshot %d changed\nfrom %s\nto   %s", i, was, is)
			}
		})
		c.create(api.Name(fmt.Sprintf("/f%d", i)), namespace.Spec{Ephemeral: true, Opener: bob})
		g := c.mustAcquire(lock, carol, api.Shared, time.Second)
		if _, err := c.tree.Release(lock, carol, g); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			for _, dying := range c.tree.DropSession(bob.Session, true, c.draw).Dying {
				c.tree.Remove(dying)
			}
		}
	}
	readers.Wait()
}
