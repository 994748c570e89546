package namespace_test

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// cell is a tree and its counter, with helpers for tests of expected results.
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
	n := must(c.tree.Create(name, spec, c.drawGeneration()))(c)
	return n
}

func (c *cell) acquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) (api.Generation, error) {
	return c.tree.Acquire(ref, namespace.Holder{Owner: by, Delay: delay, Reason: "a test", SinceUnix: 7}, mode, c.drawGeneration)
}

func (c *cell) mustAcquire(ref namespace.Ref, by namespace.Owner, mode api.LockMode, delay time.Duration) api.Generation {
	c.Helper()
	g := must(c.acquire(ref, by, mode, delay))(c)
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
		c.Fatalf("released %+v, want %+v", got, want)
	}
}

var rootACL = api.ACL{Read: "all", Write: "some", Change: "few"}

// world is the state that a log changes: a tree and the counter from which its
// numbers come.
type world struct {
	tree    namespace.Tree
	counter uint64
}

func newWorld() *world { return &world{tree: namespace.New(rootACL), counter: 1} }

func (w *world) draw() uint64 { w.counter++; return w.counter }

func (w *world) drawGeneration() api.Generation { return api.Generation(w.draw()) }

// dump returns everything that a tree shows.
func dump(t namespace.Tree) string {
	var b strings.Builder
	pointer := regexp.MustCompile("0x[0-9a-f]{6,}")
	show := func(what string, nodes iter.Seq[*namespace.Node]) {
		fmt.Fprintf(&b, "%s:", what)
		for n := range nodes {
			shown := *n
			shown.Quota = nil // do not print a pointer
			fmt.Fprintf(&b, " %+v %+v", shown, n.Quota)
		}
		b.WriteString("\n")
	}
	show("all", t.All())
	show("locked", t.Locked(""))
	for session := range 4 {
		show(fmt.Sprint("session ", session), t.OwnedBy(api.SessionID(session)))
	}
	for name, d := range t.Delays() {
		fmt.Fprintf(&b, "%s: %+v\n", name, d)
	}
	for _, creator := range []string{"", "ann", "bob"} {
		fmt.Fprintf(&b, "%q uses %+v\n", creator, t.Usage(creator))
	}
	fmt.Fprintf(&b, "%+v", t.Counts())
	return pointer.ReplaceAllString(b.String(), "a list") // a pointer too; the list's contents are those of the node
}

// A copy is independent: a change of one is not visible in the other, however
// many handles hold a lock or have a node open.
func TestCopiesGoTheirOwnWays(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	for handle := range api.HandleID(20) {
		join := func(tree *namespace.Tree, session api.SessionID) string {
			by := namespace.Holder{Owner: namespace.Owner{Session: session, Handle: handle}}
			_, opened := tree.Open(file, by.Owner)
			_, acquired := tree.Acquire(file, by, api.Shared, c.drawGeneration)
			noErr(t, errors.Join(opened, acquired))
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

// Many goroutines may read a copy while the tree changes; the race detector
// checks it.
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
		must(c.tree.Release(lock, carol, g))(t)
		if i%10 == 9 {
			for _, dying := range c.tree.DropSession(bob.Session, true, c.draw).Dying {
				c.tree.Remove(dying)
			}
		}
	}
	readers.Wait()
}

// From every mark on, Below returns the later nodes that a scan of all nodes
// finds.
func TestBelow(t *testing.T) {
	tree := namespace.New(api.ACL{})
	names := []api.Name{"/a", "/a-", "/a/a", "/a/b", "/a/b/c", "/a-/x", "/ab", "/b", "/b/a", "/b/a/c"}
	for i, name := range names {
		must(tree.Create(name, namespace.Spec{Kind: api.Directory}, api.Generation(i+2)))(t)
	}
	for _, prefix := range append([]api.Name{"", "/none", "/a/none"}, names...) {
		var want []api.Name
		for n := range tree.All() {
			if n.Name == prefix || strings.HasPrefix(string(n.Name), string(prefix)+"/") {
				want = append(want, n.Name)
			}
		}
		var marks []namespace.Mark
		for behind := namespace.Mark(nil); ; {
			var got []api.Name
			for mark, n := range tree.Below(prefix, behind) {
				if got = append(got, n.Name); len(got) == 1 {
					marks = append(marks, slices.Clone(mark))
					if !slices.Equal(mark, n.Mark()) {
						t.Errorf("the mark of %s is %q, and Mark returns %q", n.Name, mark, n.Mark())
					}
				}
			}
			if rest := want[min(len(want), len(marks)-min(len(got), 1)):]; !slices.Equal(got, rest) {
				t.Errorf("below %q, behind %q: %v, want %v", prefix, behind, got, rest)
			}
			if len(got) == 0 {
				break
			}
			behind = marks[len(marks)-1]
		}
	}
}

// A counter that went back must not make a lock's generation go back.
func TestLockGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	lock := c.create("/l", namespace.Spec{}).Ref()
	g := c.mustAcquire(lock, alice, api.Exclusive, 0)
	must(c.tree.Close(lock, alice))(t)
	for _, next := range []api.Generation{0, g - 1, g, api.MaxGeneration + 1} {
		_, err := c.tree.Acquire(lock, namespace.Holder{Owner: bob}, api.Exclusive, func() api.Generation { return next })
		c.want(err, api.Corrupt)
	}
	if n := c.node("/l"); n.Lock != g || len(n.Holders) > 0 {
		t.Errorf("a refused claim has changed the lock to %+v", n)
	}
}

// The same holds for the generations of contents and ACL names.
func TestContentGenerationNeverGoesBack(t *testing.T) {
	c := newCell(t)
	before := c.create("/f", namespace.Spec{})
	for _, next := range []api.Generation{0, before.Content - 1, before.Content, api.MaxGeneration + 1} {
		draw := func() api.Generation { return next }
		_, err := c.tree.SetContents(before.Ref(), namespace.Write{Contents: []byte("x")}, draw)
		c.want(err, api.Corrupt)
		_, err = c.tree.SetACL(before.Ref(), api.ACL{Read: "r"}, nil, draw)
		c.want(err, api.Corrupt)
	}
	if c.node("/f") != before {
		t.Error("a refused change has changed the node")
	}
}

// Commands from the log must obey the same limits as requests.
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
	must(c.tree.Acquire(file, holder, api.Shared, c.drawGeneration))(t)
	noErr(t, c.tree.Check())

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

// must returns what a call returned that had to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noErr(t, err)
		return value
	}
}

// noErr ends the test if there is an error.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A tree lists and counts what is in it, before and after it has changed.
func TestListingsAndCounts(t *testing.T) {
	c := newCell(t)
	names := func(list iter.Seq[*namespace.Node]) (got []api.Name) {
		for n := range list {
			got = append(got, n.Name)
		}
		return got
	}
	are := func(what string, list iter.Seq[*namespace.Node], want ...api.Name) {
		t.Helper()
		if got := names(list); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	count := func() {
		t.Helper()
		var want namespace.Counts
		for n := range c.tree.All() {
			want.Nodes++
			want.Bytes += int64(len(n.Contents))
			want.Names += int64(len(n.Name) + len(n.ACL.Read) + len(n.ACL.Write) + len(n.ACL.Change) + len(n.Creator))
			if n.Name.Parent() == api.ACLDir && n.Kind == api.File {
				want.Lists += int64(len(n.Contents))
			}
			if len(n.Holders) > 0 {
				want.Locks++
			}
			if n.Quota != nil {
				want.Limited++
			}
		}
		if got := c.tree.Counts(); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
		c.want(c.tree.Check(), api.OK)
	}
	for _, name := range []api.Name{api.ACLDir, "/a", "/a-", "/b"} {
		c.create(name, namespace.Spec{Kind: api.Directory, Creator: "ann"})
	}
	list := c.create(api.ACLDir+"/ops", namespace.Spec{Contents: []byte("ann\nbob\n")})
	file := c.create("/a/z", namespace.Spec{Contents: []byte("text"), ACL: api.ACL{Write: "ops"}, Creator: "bob"})
	other := c.create("/b/y", namespace.Spec{Contents: []byte{}})
	if other.Contents != nil {
		t.Error("empty contents differ from those of a snapshot")
	}
	_, err := c.tree.SetQuota(c.node("/a").Ref(), namespace.Usage{Nodes: 9})
	c.want(err, api.OK)
	lock := c.mustAcquire(other.Ref(), alice, api.Shared, 0) // the first session has the last name
	c.mustAcquire(other.Ref(), carol, api.Shared, 0)
	c.mustAcquire(file.Ref(), bob, api.Exclusive, 0)
	count()
	are("children of the root", c.tree.Children("", ""), "/a", "/a-", api.ACLDir, "/b")
	are("children after a-", c.tree.Children("", "a-"), api.ACLDir, "/b")
	are("children of /a", c.tree.Children("/a", ""), "/a/z")
	are("locked", c.tree.Locked(""), "/a/z", "/b/y")
	are("locked below /b", c.tree.Locked("/b"), "/b/y")

	for i, by := range []namespace.Owner{alice, carol} { // the lock is vacant when the last has left
		d, err := c.tree.Release(other.Ref(), by, lock)
		c.want(err, api.OK)
		if want := []namespace.Vacancy{{Lock: other.Ref(), Generation: lock}}[:i]; !slices.Equal(d.Vacant, want) {
			t.Errorf("vacant %+v, want %+v", d.Vacant, want)
		}
	}
	d, err := c.tree.Close(other.Ref(), alice) // which has nothing any more
	c.want(err, api.OK)
	if len(d.Vacant) > 0 {
		t.Errorf("vacant %+v", d.Vacant)
	}
	for _, n := range []*namespace.Node{list, other} {
		c.want(c.tree.Delete(n.Ref(), alice), api.OK)
		c.want(c.tree.Delete(n.Ref(), alice), api.HandleClosed)
		_, err := c.tree.Open(n.Ref(), alice)
		c.want(err, api.HandleClosed)
	}
	count()
	are("locked", c.tree.Locked(""), "/a/z")
	_, err = c.tree.Create("/none/x", namespace.Spec{Kind: api.File}, c.drawGeneration())
	c.wantCause("no directory", err, refusal.ParentUnknown)
	_, err = c.tree.Create("/x", namespace.Spec{Kind: api.Directory, Contents: []byte("x")}, c.drawGeneration())
	c.wantCause("contents of a directory", err, refusal.DirectoryContents)
	_, err = c.acquire(file.Ref(), carol, api.Exclusive, -1)
	c.wantCause("a negative delay", err, refusal.DelayOutOfRange)
}
