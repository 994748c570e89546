package namespace_test

import (
	"fmt"
	"hash/crc64"
	"runtime"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

type use = namespace.Usage

// limited returns a tree with a quota on the root, on /d and on /d/e.
func limited(t *testing.T) *cell {
	t.Helper()
	c := newCell(t)
	c.create("/d", namespace.Spec{Kind: api.Directory, Creator: "dan"})
	c.create("/d/e", namespace.Spec{Kind: api.Directory, Creator: "dan"})
	for name, limit := range map[api.Name]use{"": {Nodes: 100, Bytes: 1000}, "/d": {Nodes: 4, Bytes: 40}, "/d/e": {Nodes: 2}} {
		must(c.tree.SetQuota(c.node(name).Ref(), limit))(t)
	}
	c.wantUsed(use{Nodes: 2}, use{Nodes: 1}, use{})
	return c
}

// wantUsed compares what is counted below the root, /d and /d/e.
func (c *cell) wantUsed(want ...use) {
	c.Helper()
	for i, name := range []api.Name{"", "/d", "/d/e"}[:len(want)] {
		if n := c.node(name); n.Quota == nil || n.Quota.Used != want[i] {
			c.Errorf("below %q: %+v, want %+v used", name, n.Quota, want[i])
		}
	}
	c.want(c.tree.Check(), api.OK)
}

// What is below a directory counts against every quota above it from its
// creation to its end, whatever operation ends it.
func TestQuotasCountEverythingBelow(t *testing.T) {
	c := limited(t)
	f := c.create("/d/e/f", namespace.Spec{Contents: []byte("12345"), Creator: "fay"}).Ref()
	c.wantUsed(use{Nodes: 3, Bytes: 5}, use{Nodes: 2, Bytes: 5}, use{Nodes: 1, Bytes: 5})
	must(c.tree.SetContents(f, namespace.Write{Contents: []byte("12")}, c.drawGeneration))(t)
	c.wantUsed(use{Nodes: 3, Bytes: 2}, use{Nodes: 2, Bytes: 2}, use{Nodes: 1, Bytes: 2})
	eph := c.create("/d/eph", namespace.Spec{Contents: []byte("1"), Ephemeral: true, Opener: alice}).Ref()
	c.create("/top", namespace.Spec{Contents: []byte("1")})
	c.create("/d-", namespace.Spec{Contents: []byte("1")}) // beside /d, not below
	c.wantUsed(use{Nodes: 6, Bytes: 5}, use{Nodes: 3, Bytes: 3}, use{Nodes: 1, Bytes: 2})
	c.tree.DropSession(alice.Session, true, c.draw)
	c.wantUsed(use{Nodes: 6, Bytes: 5}, use{Nodes: 3, Bytes: 3}, use{Nodes: 1, Bytes: 2}) // dying, but still there
	if !c.tree.Remove(eph) {
		t.Fatal("the node was not removed")
	}
	c.wantUsed(use{Nodes: 5, Bytes: 4}, use{Nodes: 2, Bytes: 2}, use{Nodes: 1, Bytes: 2})
	if got := c.tree.Usage("fay"); got != (use{Nodes: 1, Bytes: 2}) {
		t.Errorf("fay uses %+v", got)
	}
	c.want(c.tree.Delete(f, alice), api.OK)
	c.wantUsed(use{Nodes: 4, Bytes: 2}, use{Nodes: 1}, use{})
	c.want(c.tree.Delete(c.node("/d/e").Ref(), alice), api.OK) // with its quota
	c.wantUsed(use{Nodes: 3, Bytes: 2}, use{})
	for creator, want := range map[string]use{"fay": {}, "dan": {Nodes: 1}, "": {Nodes: 3, Bytes: 2}} {
		if got := c.tree.Usage(creator); got != want {
			t.Errorf("%q uses %+v, want %+v", creator, got, want)
		}
	}
	if got := c.tree.Counts().Limited; got != 2 {
		t.Errorf("%d directories have a quota, want 2", got)
	}
}

// CheckQuota asks every directory above; a change that needs no more room is
// always allowed.
func TestRoom(t *testing.T) {
	c := limited(t)
	c.create("/d/e/f", namespace.Spec{Contents: make([]byte, 30)})
	for _, want := range []struct {
		name api.Name
		more use
		code api.Code
	}{
		{"/d/e/g", use{Nodes: 1, Bytes: 10}, api.OK},
		{"/d/e/g", use{Nodes: 2}, api.QuotaExceeded},            // the quota of /d/e
		{"/d/e/g", use{Nodes: 1, Bytes: 11}, api.QuotaExceeded}, // the quota of /d
		{"/d/g", use{Nodes: 2}, api.OK},
		{"/d/g", use{Nodes: 3}, api.QuotaExceeded},
		{"/g", use{Nodes: 97, Bytes: 970}, api.OK},
		{"/g", use{Nodes: 98}, api.QuotaExceeded}, // the quota of the root
		{"/g", use{Bytes: 971}, api.QuotaExceeded},
		{"/d/e/g", use{}, api.OK},
		{"/none/such/g", use{Nodes: 98}, api.QuotaExceeded},
		{"", use{Nodes: 1000}, api.OK}, // nothing is above it
		{"x", use{Nodes: 1}, api.InvalidArgument},
		{"/", use{Nodes: 1}, api.InvalidArgument},
		{"/d//x", use{Nodes: 1}, api.InvalidArgument},
	} {
		if err := c.tree.CheckQuota(want.name, want.more); api.CodeOf(err) != want.code {
			t.Errorf("%+v at %q: %v, want %v", want.more, want.name, err, want.code)
		}
	}
	if _, err := c.tree.SetQuota(c.node("/d").Ref(), use{Nodes: 1, Bytes: 1}); err != nil { // less than is used
		t.Fatal(err)
	}
	for _, more := range []use{{}, {Bytes: -1}, {Nodes: -1}, {Nodes: -1, Bytes: -30}} {
		if err := c.tree.CheckQuota("/d/e/f", more); err != nil {
			t.Errorf("%+v: %v", more, err)
		}
	}
	if err := c.tree.CheckQuota("/d/e/f", use{Bytes: 1}); !strings.Contains(err.Error(), "/d: 30 used, 1 allowed") {
		t.Errorf("%v does not say where, how much is used and how much is allowed", err)
	}
	if err := newCell(t).tree.CheckQuota("x", use{Nodes: 1}); api.CodeOf(err) != api.InvalidArgument {
		t.Errorf("an invalid name, without any quota: %v", err)
	}
}

// Only a directory can have a quota; it can be changed, set below the present
// usage, and removed.
func TestSetQuota(t *testing.T) {
	c := limited(t)
	f := c.create("/d/f", namespace.Spec{Contents: make([]byte, 9)}).Ref()
	_, err := c.tree.SetQuota(f, use{Nodes: 1})
	c.want(err, api.NotDirectory)
	d := c.node("/d")
	for _, limit := range []use{{Nodes: -1}, {Bytes: -1}, {Nodes: 1, Bytes: -1}} {
		_, err = c.tree.SetQuota(d.Ref(), limit)
		c.want(err, api.InvalidArgument)
	}
	_, err = c.tree.SetQuota(namespace.Ref{Name: "/d", Instance: 99}, use{Nodes: 1})
	c.want(err, api.HandleClosed)
	if c.node("/d") != d {
		t.Error("a refused change has changed the directory")
	}
	n, err := c.tree.SetQuota(d.Ref(), use{Nodes: 1})
	c.want(err, api.OK)
	if want := (namespace.Quota{Limit: use{Nodes: 1}, Used: use{Nodes: 2, Bytes: 9}}); *n.Quota != want {
		t.Errorf("%+v, want %+v", *n.Quota, want)
	}
	c.want(c.tree.Delete(f, alice), api.OK) // removing a node needs no room
	c.wantUsed(use{Nodes: 2}, use{Nodes: 1}, use{})
	for _, name := range []api.Name{"/d", "/d/e", ""} {
		if n, err = c.tree.SetQuota(c.node(name).Ref(), use{}); err != nil || n.Quota != nil {
			t.Errorf("the end of the quota on %q: %+v, %v", name, n.Quota, err)
		}
	}
	if got := c.tree.Counts().Limited; got != 0 {
		t.Errorf("%d directories have a quota, want none", got)
	}
	c.want(c.tree.CheckQuota("/d/e/x", use{Nodes: 1000}), api.OK)
	c.want(c.tree.Check(), api.OK)
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A tree takes no more memory than it weighs, whatever its nodes are: the master lets it weigh two fifths of what there is, and a replica that
// takes a snapshot has it twice, so that a quarter more is all that there is room for.
func TestTreeTakesWhatItWeighs(t *testing.T) {
	const nodes = 20_000
	text := func(n int, with string) string { return strings.Clone(strings.Repeat(with, n)) } // of each command its own, as it is decoded
	for what, one := range map[string]func(n int) *namespace.Node{
		"plain": func(n int) *namespace.Node {
			return &namespace.Node{ACL: api.ACL{Read: text(8, "r"), Write: text(8, "w"), Change: text(8, "c")}, Creator: text(8, "p")}
		},
		"long names of lists and creators": func(n int) *namespace.Node {
			return &namespace.Node{ACL: api.ACL{Read: text(255, "r"), Write: text(255, "w"), Change: text(255, "c")}, Creator: text(255, "p")}
		},
	} {
		t.Run(what, func(t *testing.T) {
			before := heap()
			tree := namespace.New(api.ACL{})
			weight := tree.Counts().Weight()
			for n := range nodes {
				node := one(n)
				node.Name, node.Kind, node.Instance, node.Content, node.ACLs = api.Name(fmt.Sprintf("/n%d", n)), api.File, 1, 1, 1
				noErr(t, tree.Adopt(node, 1))
			}
			took, weighs := heap()-before, tree.Counts().Weight()-weight
			t.Logf("%d nodes take %d bytes each, and weigh %d", nodes, took/nodes, weighs/nodes)
			if took > weighs*5/4 {
				t.Errorf("they take %d MiB, and weigh %d", took>>20, weighs>>20)
			}
			runtime.KeepAlive(tree)
		})
	}
}

// So do access control lists, which are kept in a second form.
func TestListsTakeWhatTheyWeigh(t *testing.T) {
	const lists = 40
	var long strings.Builder
	for n := 0; long.Len() < api.MaxContents-8; n++ { // nothing takes more beside its bytes than short names
		fmt.Fprintf(&long, "%s\n", strings.TrimLeft(string([]byte{byte('0' + n>>12&63), byte('0' + n>>6&63), byte('0' + n&63)}), "0"))
	}
	before := heap()
	tree := namespace.New(api.ACL{})
	noErr(t, tree.Adopt(&namespace.Node{Name: api.ACLDir, Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1}, 1))
	weight := tree.Counts().Weight()
	for n := range lists {
		contents := []byte(long.String())
		node := &namespace.Node{Name: namespace.ACLFile(fmt.Sprint("l", n)), Kind: api.File, Instance: 1, Content: 1, ACLs: 1, Contents: contents, Checksum: crc64.Checksum(contents, crc64.MakeTable(crc64.ECMA))}
		noErr(t, tree.Adopt(node, 1))
	}
	took, weighs := heap()-before, tree.Counts().Weight()-weight
	t.Logf("%d lists take %d KiB each, and weigh %d", lists, took/lists>>10, weighs/lists>>10)
	if took > weighs*5/4 {
		t.Errorf("they take %d MiB, and weigh %d", took>>20, weighs>>20)
	}
	runtime.KeepAlive(tree)
}
