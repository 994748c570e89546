package namespace_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/refusal"
)

// wantCause checks why something was refused.
func (c *cell) wantCause(what string, err error, want refusal.Cause) *refusal.Refusal {
	c.Helper()
	var r *refusal.Refusal
	if !errors.As(err, &r) || r.Cause != want {
		c.Fatalf("%s: %v, want the cause %v", what, err, want)
	}
	return r
}

// Contents of api.MaxContents are kept, and one byte more gets into the state in no way.
func TestContentsAreBounded(t *testing.T) {
	c := newCell(t)
	most := bytes.Repeat([]byte("c"), api.MaxContents)
	more := append(slices.Clone(most), 'c')
	file := c.create("/full", namespace.Spec{Contents: most})
	for what, contents := range map[string][]byte{"as many": most, "more": more} {
		code := api.OK
		if what == "more" {
			code = api.TooLarge
		}
		_, err := c.tree.SetContents(file.Ref(), namespace.Write{Contents: contents}, c.drawGeneration)
		c.want(err, code)
		_, err = c.tree.Create(api.Name("/"+what), namespace.Spec{Kind: api.File, Contents: contents}, c.drawGeneration())
		c.want(err, code)
	}
	if n := c.node("/full"); len(n.Contents) != api.MaxContents {
		t.Errorf("the file has %d bytes", len(n.Contents))
	}
	c.want(c.tree.Check(), api.OK)
}

// The largest generation and the longest delay are allowed.
func TestLargestNumbersAreAllowed(t *testing.T) {
	c := newCell(t)
	first, err := c.tree.Create("/f", namespace.Spec{Kind: api.File}, api.MaxGeneration-1)
	c.want(err, api.OK)
	_, err = c.tree.SetContents(first.Ref(), namespace.Write{}, func() api.Generation { return api.MaxGeneration })
	c.want(err, api.OK)
	_, err = c.tree.Create("/g", namespace.Spec{Kind: api.File}, api.MaxGeneration)
	c.want(err, api.OK)
	c.tree.RestoreDelay("/f", namespace.Delay{ID: 1, Mode: api.Exclusive, For: api.MaxLockDelay})
	c.want(c.tree.Check(), api.OK)
	_, err = c.tree.Create("/h", namespace.Spec{Kind: api.File}, 0)
	c.wantCause("no instance", err, refusal.InstanceInvalid)
}

// A refusal says what was wrong, not only that something was.
func TestRefusalsOfNodes(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{})
	dying := c.create("/dying", namespace.Spec{Ephemeral: true, Opener: alice})
	must(c.tree.Close(dying.Ref(), alice))(t)
	create := func(name api.Name, spec namespace.Spec) error {
		spec.Kind = api.File
		_, err := c.tree.Create(name, spec, c.drawGeneration())
		return err
	}
	open := func(ref namespace.Ref, by namespace.Owner) error {
		_, err := c.tree.Open(ref, by)
		return err
	}
	c.wantCause("a name that is free soon", create("/dying", namespace.Spec{}), refusal.NodeDying)
	c.wantCause("a name that is taken", create("/f", namespace.Spec{}), refusal.NodeExists)
	c.wantCause("a file in a file", create("/f/g", namespace.Spec{}), refusal.ParentIsFile)
	c.wantCause("an ephemeral file of nobody", create("/e", namespace.Spec{Ephemeral: true}), refusal.NoCreator)
	c.wantCause("opened by nobody", open(file.Ref(), namespace.Owner{}), refusal.NoOpener)
	c.wantCause("opened when it is dying", open(dying.Ref(), bob), refusal.NodeDying)
	if n, err := c.tree.Open(file.Ref(), alice); err != nil || n != c.node("/f") {
		t.Errorf("Open of a permanent file returns %v, %v; want the node", n, err)
	}
	e := c.create("/e", namespace.Spec{Ephemeral: true, Opener: alice})
	for range 2 { // the second time it is open already
		if n, err := c.tree.Open(e.Ref(), bob); err != nil || n != c.node("/e") || !slices.Equal(n.Openers, []namespace.Owner{alice, bob}) {
			t.Errorf("Open of an ephemeral file returns %v, %v; want the node with both openers", n, err)
		}
	}
	c.want(c.tree.Check(), api.OK)
}

// Close takes from a node what its handle has, and nothing of others.
func TestCloseIsOfOneHandle(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{Ephemeral: true, Opener: alice}).Ref()
	again := namespace.Owner{Session: alice.Session, Handle: 2}
	for _, by := range []namespace.Owner{bob, again} {
		must(c.tree.Open(file, by))(t)
	}
	for _, by := range []namespace.Owner{alice, bob, again} { // the sessions of the holders are not in order
		c.mustAcquire(file, by, api.Shared, 0)
	}
	c.want(c.tree.Check(), api.OK)
	d, err := c.tree.Close(file, alice)
	c.want(err, api.OK)
	c.wantDropped(d, namespace.Dropped{Free: []api.Name{"/f"}})
	n := c.node("/f")
	if n.Holds(alice) || !n.Holds(bob) || !n.Holds(again) || len(n.Openers) != 2 || len(d.Left) != 1 {
		t.Errorf("Close has left holders %v and openers %v, and told of %d", n.Holders, n.Openers, len(d.Left))
	}
	c.want(c.tree.Check(), api.OK)
}

// What is below a node goes down to the greatest depth.
func TestBelowGoesToTheGreatestDepth(t *testing.T) {
	c := newCell(t)
	name := api.Name("")
	for range api.MaxDepth {
		name += "/d"
		c.create(name, namespace.Spec{Kind: api.Directory})
	}
	for _, n := range c.tree.Below("/d", nil) {
		if n.Name != "/d" {
			t.Errorf("%s comes first", n.Name)
		}
		break // and the loop ends
	}
	found := 0
	for _, n := range c.tree.Below("/d", nil) {
		if found++; n.Name == name {
			return
		}
	}
	t.Errorf("of %d directories %d were found, and the deepest was not", api.MaxDepth, found)
}

// Stat tells everything of a node that it has.
func TestStat(t *testing.T) {
	c := newCell(t)
	c.create("/d", namespace.Spec{Kind: api.Directory, ModifiedUnix: 5})
	file := c.create("/d/f", namespace.Spec{Contents: []byte("abc"), ModifiedUnix: 6})
	lock := c.mustAcquire(file.Ref(), alice, api.Exclusive, 0)
	must(c.tree.SetContents(file.Ref(), namespace.Write{Contents: []byte("abcd"), ModifiedUnix: 7}, c.drawGeneration))(t)
	if s := c.node("/d").Stat(); s.Kind != api.Directory || s.Children != 1 || s.ModifiedUnix != 5 || s.Lock != 0 {
		t.Errorf("Stat of the directory: %+v", s)
	}
	s, n := c.node("/d/f").Stat(), c.node("/d/f")
	if s.Lock != lock || s.Size != 4 || s.Children != 0 || s.ModifiedUnix != 7 || s.Instance != n.Instance || s.Content != n.Content || s.Checksum != n.Checksum {
		t.Errorf("Stat of the file: %+v", s)
	}
}

// Locks are not recursive, also in shared mode: a handle that is there twice would still hold the lock when it has released it.
func TestNoHandleHoldsALockTwice(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{}).Ref()
	c.mustAcquire(file, alice, api.Shared, 0)
	c.mustAcquire(file, bob, api.Shared, 0)
	_, err := c.acquire(file, alice, api.Shared, 0)
	r := c.wantCause("acquired twice", err, refusal.HeldByHandle)
	if r.HolderCount != 2 || !slices.Equal(r.Holders, []api.SessionID{alice.Session, bob.Session}) {
		t.Errorf("the refusal names %v of %d holders", r.Holders, r.HolderCount)
	}
	for id := range api.SessionID(refusal.MaxHolders) {
		c.mustAcquire(file, namespace.Owner{Session: 10 + id, Handle: 1}, api.Shared, 0)
	}
	_, err = c.acquire(file, carol, api.Exclusive, 0)
	r = c.wantCause("a crowd", err, refusal.HeldInConflict)
	if r.HolderCount != refusal.MaxHolders+2 || len(r.Holders) != refusal.MaxHolders {
		t.Errorf("the refusal names %d of %d holders, want %d", len(r.Holders), r.HolderCount, refusal.MaxHolders)
	}
	handles := []namespace.Owner{carol, bob}
	if n := c.node("/f"); !n.HeldByAny(handles) || !n.HeldByAny(handles[1:]) || n.HeldByAny(handles[:1]) || n.HeldByAny(nil) {
		t.Error("HeldByAny is wrong")
	}
}

// Of holders that fail together the longest lock-delay counts, whoever has it, and a delay that there is already is not shortened.
func TestLongestDelayCounts(t *testing.T) {
	for _, delays := range [][2]time.Duration{{9 * time.Second, time.Second}, {time.Second, 9 * time.Second}} {
		c := newCell(t)
		file := c.create("/f", namespace.Spec{}).Ref()
		for i, delay := range delays {
			c.mustAcquire(file, namespace.Owner{Session: alice.Session, Handle: api.HandleID(i + 1)}, api.Shared, delay)
		}
		c.mustAcquire(file, bob, api.Shared, 2*time.Second)
		other := c.create("/g", namespace.Spec{}).Ref()
		c.mustAcquire(other, alice, api.Shared, 2*time.Second)
		c.mustAcquire(other, bob, api.Shared, 9*time.Second)
		for _, session := range []api.SessionID{alice.Session, bob.Session} {
			c.tree.DropSession(session, true, c.draw)
			if d, ok := c.tree.Delay("/f"); !ok || d.For != 9*time.Second {
				t.Errorf("delays %v: after session %v the delay is %v, want 9 s", delays, session, d.For)
			}
		}
		if d, ok := c.tree.Delay("/g"); !ok || d.For != 9*time.Second {
			t.Errorf("a longer delay after a shorter one is %v, want 9 s", d.For)
		}
	}
	c := newCell(t)
	if c.tree.EndDelay("/f", 0) {
		t.Error("a delay was ended that there is not")
	}
}

// Each operation that ends a holding says whose it was and how it ended; only a failed holder leaves its delay, and only a broken
// lock names who broke it.
func TestLeftHoldings(t *testing.T) {
	by := refusal.Intervention{Principal: "ops", Why: "it hangs"}
	for name, test := range map[string]struct {
		broken bool
		delay  time.Duration
		end    func(c *cell, file namespace.Ref, lock api.Generation) namespace.Dropped
	}{
		"released": {end: func(c *cell, file namespace.Ref, lock api.Generation) namespace.Dropped {
			d, err := c.tree.Release(file, alice, lock)
			c.want(err, api.OK)
			return d
		}},
		"closed": {end: func(c *cell, file namespace.Ref, _ api.Generation) namespace.Dropped {
			d, err := c.tree.Close(file, alice)
			c.want(err, api.OK)
			return d
		}},
		"failed": {delay: 3 * time.Second, end: func(c *cell, _ namespace.Ref, _ api.Generation) namespace.Dropped {
			return c.tree.DropSession(alice.Session, true, c.draw)
		}},
		"ended": {end: func(c *cell, _ namespace.Ref, _ api.Generation) namespace.Dropped {
			return c.tree.DropSession(alice.Session, false, c.draw)
		}},
		"broken": {broken: true, end: func(c *cell, file namespace.Ref, lock api.Generation) namespace.Dropped {
			_, err := c.tree.Revoke(file, by)
			c.want(err, api.OK)
			return c.tree.Evict(file, lock, []namespace.Owner{alice})
		}},
	} {
		c := newCell(t)
		file := c.create("/f", namespace.Spec{}).Ref()
		lock := c.mustAcquire(file, alice, api.Exclusive, 3*time.Second)
		want := api.Holding{Session: alice.Session, Mode: api.Exclusive, Generation: lock, FromUnix: 7, Reason: "a test", Delay: test.delay}
		if test.broken {
			want.End, want.EndedBy, want.EndedWhy = api.ByBreak, by.Principal, by.Why
		}
		d := test.end(c, file, lock)
		if len(d.Left) != 1 || d.Left[0].Lock != file || *d.Left[0].Holding != want {
			t.Errorf("%s: %+v, want %+v", name, d.Left, want)
		}
	}
}

// Evict of a lock that is not revoked in that generation, or of others than its holders, changes nothing.
func TestEvictOfOthers(t *testing.T) {
	c := newCell(t)
	file := c.create("/f", namespace.Spec{}).Ref()
	lock := c.mustAcquire(file, alice, api.Exclusive, 0)
	try := func(ref namespace.Ref, generation api.Generation, holder namespace.Owner) {
		t.Helper()
		c.wantDropped(c.tree.Evict(ref, generation, []namespace.Owner{holder}), namespace.Dropped{})
		if !c.node("/f").Holds(alice) {
			t.Fatal("the holder is gone")
		}
	}
	try(file, lock, alice)
	_, err := c.tree.Revoke(file, refusal.Intervention{})
	c.want(err, api.OK)
	try(file, lock+1, alice)
	try(file, lock, bob)
	try(namespace.Ref{Name: "/g", Instance: file.Instance}, lock, alice)
}

// readAgain returns a tree that has what a snapshot has of each node.
func (c *cell) readAgain() namespace.Tree {
	c.Helper()
	read := namespace.New(rootACL)
	for n := range c.tree.All() {
		copied := namespace.Node{Name: n.Name, Kind: n.Kind, Instance: n.Instance, Content: n.Content, ACLs: n.ACLs, ACL: n.ACL,
			Contents: n.Contents, Checksum: n.Checksum, Children: n.Children, Creator: n.Creator, Quota: n.Quota}
		noErr(c, read.Restore(&copied))
	}
	noErr(c, read.Check())
	return read
}

// A quota keeps its limits and counts whole trees, also when it is read from a snapshot.
func TestQuotaKeepsItsLimits(t *testing.T) {
	c := newCell(t)
	dir := c.create("/d", namespace.Spec{Kind: api.Directory, Creator: "ann"})
	c.create("/d/e", namespace.Spec{Kind: api.Directory, Creator: "bea"})
	c.create("/d/e/f", namespace.Spec{Contents: []byte("abc"), Creator: "cid"})
	limit := namespace.Usage{Nodes: 4, Bytes: 5}
	n, err := c.tree.SetQuota(dir.Ref(), limit)
	if err != nil || n.Quota == nil || n.Quota.Limit != limit || n.Quota.Used != (namespace.Usage{Nodes: 2, Bytes: 3}) {
		t.Fatalf("SetQuota returns %+v, %v", n.Quota, err)
	}
	read := c.readAgain()
	if got, _ := read.Get("/d"); *got.Quota != *n.Quota {
		t.Errorf("read from a snapshot it is %+v, want %+v", got.Quota, n.Quota)
	}
	for what, more := range map[refusal.Cause]namespace.Usage{refusal.NodeQuotaBelow: {Nodes: 3}, refusal.ByteQuotaBelow: {Bytes: 3}} {
		c.wantCause("too much", read.CheckQuota("/d/g", more), what)
		c.want(read.CheckQuota("/d/g", namespace.Usage{Nodes: 2, Bytes: 2}), api.OK)
	}
	must(c.tree.SetQuota(dir.Ref(), namespace.Usage{Bytes: 5}))(t)
	c.want(c.tree.CheckQuota("/d/g", namespace.Usage{Nodes: 99}), api.OK) // no limit is set
	_, err = c.tree.SetQuota(dir.Ref(), namespace.Usage{Nodes: -1, Bytes: 5})
	if r := c.wantCause("a negative quota", err, refusal.QuotaNegativeBelow); *r.Quota != (api.Quota{Nodes: -1, Bytes: 5}) {
		t.Errorf("the refusal names %+v", r.Quota)
	}
	if got := slices.Collect(c.tree.Creators("ann")); !slices.Equal(got, []string{"bea", "cid"}) {
		t.Errorf("creators behind ann: %q", got)
	}
	for creator := range c.tree.Creators("ann") {
		if creator != "bea" {
			t.Errorf("the loop goes on to %q", creator)
		}
		break
	}
}

// A list that was read from a snapshot admits whom it admitted, and a list without entries admits nobody.
func TestListsOfASnapshot(t *testing.T) {
	c := lists(t, map[string]string{"team": "ann\nann\n", "empty": "# nobody\n\n@\n", "all": "*", "wide": strings.Repeat("@none\n", 64) + "@team"})
	read := c.readAgain()
	for name, nobody := range map[string]bool{"team": false, "empty": true, "all": false, "wide": false} {
		if read.Admits(name, "ann") == nobody {
			t.Errorf("%s admits ann: %v", name, !nobody)
		}
		if n, _ := read.Get(namespace.ACLFile(name)); n.AdmitsNobody() != nobody {
			t.Errorf("%s admits nobody: %v, want %v", name, !nobody, nobody)
		}
	}
	c.create("/f", namespace.Spec{Contents: []byte("ann")})
	if !c.node("/f").AdmitsNobody() {
		t.Error("a file that is no list admits somebody")
	}
}
