package namespace

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	"pgregory.net/rapid"
)

// healthy returns a tree that has one of everything, with its names.
func healthy(t *testing.T) Tree {
	t.Helper()
	tree := New(api.ACL{})
	counter := api.Generation(1)
	next := func() api.Generation { counter++; return counter }
	a, b := Owner{Session: 1, Handle: 1}, Owner{Session: 2, Handle: 1}
	for _, n := range []struct {
		name api.Name
		spec Spec
	}{
		{"/dir", Spec{Kind: api.Directory}},
		{"/file", Spec{Kind: api.File, Contents: []byte("contents")}},
		{"/held", Spec{Kind: api.File}},
		{"/eph", Spec{Kind: api.File, Ephemeral: true, Opener: a}},
		{"/dying", Spec{Kind: api.File, Ephemeral: true, Opener: b}},
	} {
		if _, err := tree.Create(n.name, n.spec, next()); err != nil {
			t.Fatal(err)
		}
	}
	child, err := tree.Create("/dir/child", Spec{Kind: api.File}, next())
	if err != nil {
		t.Fatal(err)
	}
	tree.DropSession(2, false, nil)
	for _, by := range []Owner{a, b} {
		held, _ := tree.Get("/held")
		if _, err := tree.Acquire(held.Ref(), Holder{Owner: by}, api.Shared, next); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tree.Acquire(child.Ref(), Holder{Owner: a, Delay: time.Second}, api.Exclusive, next); err != nil {
		t.Fatal(err)
	}
	tree.RestoreDelay("/gone", Delay{ID: 1, Mode: api.Shared, For: time.Second})
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	return tree
}

// Check finds each kind of damage to a node that a snapshot can hold.
func TestCheckSeesDamagedNodes(t *testing.T) {
	for what, damage := range map[string]struct {
		name api.Name
		want string // in the message
		do   func(*Node)
	}{
		"root is a file":             {"", "no root", func(n *Node) { n.Kind = api.File }},
		"root is ephemeral":          {"", "no root", func(n *Node) { n.Ephemeral = true }},
		"parent is a file":           {"/dir", "not in a directory", func(n *Node) { n.Kind = api.File }},
		"one child too many":         {"/dir", "children", func(n *Node) { n.Children++ }},
		"children of a file":         {"/file", "children", func(n *Node) { n.Children++ }},
		"unknown kind":               {"/file", "neither", func(n *Node) { n.Kind = 3 }},
		"no instance":                {"/file", "generation of 0", func(n *Node) { n.Instance = 0 }},
		"no content generation":      {"/file", "generation of 0", func(n *Node) { n.Content = 0 }},
		"no ACL generation":          {"/file", "generation of 0", func(n *Node) { n.ACLs = 0 }},
		"generation beyond the last": {"/file", "beyond", func(n *Node) { n.Lock = api.MaxGeneration + 1 }},
		"contents of a directory":    {"/dir", "has contents", func(n *Node) { *n = *n.withContents([]byte("x")) }},
		"too many contents":          {"/file", "more contents", func(n *Node) { *n = *n.withContents(make([]byte, api.MaxContents+1)) }},
		"a list where none is":       {"/file", "or is none", func(n *Node) { n.list = &list{} }},
		"wrong checksum":             {"/file", "checksum", func(n *Node) { n.Contents = []byte("Contents") }},
		"openers of a permanent":     {"/file", "permanent", func(n *Node) { n.Openers = []Owner{{1, 1}} }},
		"openers out of order":       {"/eph", "out of order", func(n *Node) { n.Openers = []Owner{{2, 1}, {1, 1}} }},
		"one opener twice":           {"/eph", "out of order", func(n *Node) { n.Openers = []Owner{{1, 1}, {1, 1}} }},
		"opener of no session":       {"/eph", "no session", func(n *Node) { n.Openers = []Owner{{0, 1}} }},
		"revoked and free":           {"/file", "by nobody", func(n *Node) { n.Revoked = &refusal.Intervention{Why: "stuck"} }},
		"quota of a file":            {"/file", "no directory", func(n *Node) { n.Quota = &Quota{} }},
		"held by nobody":             {"/file", "by nobody", func(n *Node) { n.Mode = api.Shared }},
		"held in no mode":            {"/held", "in no mode", func(n *Node) { n.Mode = 0 }},
		"held in an unknown mode":    {"/held", "in no mode", func(n *Node) { n.Mode = 3 }},
		"held in no generation":      {"/held", "in no mode", func(n *Node) { n.Lock = 0 }},
		"two exclude each other":     {"/held", "several", func(n *Node) { n.Mode = api.Exclusive }},
		"one holder twice":           {"/held", "twice", func(n *Node) { n.Holders = []Holder{n.Holders[0], n.Holders[0]} }},
		"holder of no session":       {"/held", "could not have", func(n *Node) { n.Holders = []Holder{{}} }},
		"holder with a long delay":   {"/held", "could not have", func(n *Node) { n.Holders = []Holder{{Owner: Owner{1, 1}, Delay: time.Hour}} }},
		"holder who has it not open": {"/eph", "not have it open", func(n *Node) { n.Mode, n.Lock, n.Holders = api.Shared, 9, []Holder{{Owner: Owner{2, 1}}} }},
	} {
		read := New(api.ACL{})
		for n := range healthy(t).All() {
			damaged := *n
			if n.Name == damage.name {
				damage.do(&damaged)
			}
			if err := read.Restore(&damaged); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		wantCorrupt(t, what, read.Check(), damage.want)
	}
}

// Check finds each way in which the parts of a tree can disagree.
func TestCheckSeesPartsThatDisagree(t *testing.T) {
	insert := func(t *Tree, name api.Name, n *Node) { t.nodes.Set(keyOf(name), n) }
	drop := func(t *Tree, name api.Name) { t.nodes.Delete(keyOf(name)) }
	for what, damage := range map[string]struct {
		want string // in the message
		do   func(*Tree)
	}{
		"nodes":          {"counts", func(t *Tree) { t.counts.Nodes++ }},
		"bytes":          {"counts", func(t *Tree) { t.counts.Bytes-- }},
		"locks":          {"counts", func(t *Tree) { t.counts.Locks++ }},
		"quotas":         {"counts", func(t *Tree) { t.counts.Limited++ }},
		"usage":          {"uses", func(t *Tree) { t.usage.Set("", Usage{Nodes: 1}) }},
		"no usage":       {"use something", func(t *Tree) { t.usage.Delete("") }},
		"too much usage": {"use something", func(t *Tree) { t.usage.Set("x", Usage{Nodes: 1}) }},
		"what is below": {"below it", func(t *Tree) {
			n := *root(t)
			n.Quota = &Quota{Limit: Usage{Nodes: 9}, Used: Usage{Nodes: 1}}
			insert(t, "", &n)
			t.counts.Limited++
		}},
		"a missing child":  {"counts its children", func(t *Tree) { drop(t, "/dir/child") }},
		"a missing parent": {"not in a directory", func(t *Tree) { drop(t, "/dir"); root(t).Children-- }},
		"a missing root":   {"no root", func(t *Tree) { drop(t, "") }},
		"a wrong key": {"not found under", func(t *Tree) {
			insert(t, "/dir", &Node{Name: "/file", Kind: api.Directory, Instance: 9, Content: 1, ACLs: 1, Children: 1})
		}},
		"a bad name": {"cannot be", func(t *Tree) {
			insert(t, "/a//b", &Node{Name: "/a//b", Kind: api.File, Instance: 9, Content: 1, ACLs: 1})
		}},
		"owned too little":  {"index by session", func(t *Tree) { t.owned.Delete(ownedKey{2, "/held"}) }},
		"owned too much":    {"sessions own", func(t *Tree) { t.owned.Set(ownedKey{2, "/file"}, struct{}{}) }},
		"a delay and held":  {"in spite of", func(t *Tree) { t.RestoreDelay("/held", Delay{ID: 1, Mode: api.Exclusive, For: 1}) }},
		"a delay of 0":      {"lock-delay", func(t *Tree) { t.RestoreDelay("/gone", Delay{ID: 1, Mode: api.Exclusive}) }},
		"a long delay":      {"lock-delay", func(t *Tree) { t.RestoreDelay("/gone", Delay{ID: 1, Mode: api.Exclusive, For: time.Hour}) }},
		"a delay of a mode": {"lock-delay", func(t *Tree) { t.RestoreDelay("/gone", Delay{ID: 1, For: 1}) }},
		"a delay of a name": {"lock-delay", func(t *Tree) { t.RestoreDelay("gone", Delay{ID: 1, Mode: api.Exclusive, For: 1}) }},
	} {
		tree := healthy(t)
		damage.do(&tree)
		wantCorrupt(t, what, tree.Check(), damage.want)
	}
}

// root returns the root, so that a test can damage it.
func root(t *Tree) *Node { n, _ := t.Get(""); return n }

func wantCorrupt(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !errors.Is(err, api.Corrupt) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got %v, want Corrupt and %q", what, err, words)
	}
}

// Restore refuses nodes that the tree could not find again.
func TestRestoreRefuses(t *testing.T) {
	tree := healthy(t)
	before := tree.Counts()
	for _, n := range []*Node{
		nil, {Name: ""}, {Name: "/file"}, {Name: "/nowhere/f"}, {Name: "file"}, {Name: "/"}, {Name: "/a/"}, {Name: "//a"},
		{Name: api.Name(strings.Repeat("/a", api.MaxDepth+1))}, {Name: "/" + api.Name(strings.Repeat("a", api.MaxPath))},
	} {
		if err := tree.Restore(n); !errors.Is(err, api.Corrupt) {
			t.Errorf("%+v was restored: %v", n, err)
		}
	}
	if tree.Counts() != before || tree.Check() != nil {
		t.Errorf("a refused node has changed %+v to %+v: %v", before, tree.Counts(), tree.Check())
	}
}

// A log may hold anything: every operation returns, and leaves a sound tree.
func TestNoArgumentIsTooMuch(t *testing.T) {
	names := rapid.OneOf(
		rapid.SampledFrom([]string{"", "/", "//", "/dir", "/dir/", "/dir/child", "/held", "/eph", "/dying", "/gone", "x", "/a\x00", "\xff"}),
		rapid.String(),
		rapid.Map(rapid.IntRange(30, 600), func(depth int) string { return strings.Repeat("/a", depth) }),
		rapid.Map(rapid.IntRange(1000, 1030), func(size int) string { return "/" + strings.Repeat("a", size) }),
	)
	numbers := rapid.OneOf(rapid.Uint64Range(0, 12), rapid.Uint64())
	rapid.Check(t, func(rt *rapid.T) {
		tree := healthy(t)
		number := func(what string) uint64 { return numbers.Draw(rt, what) }
		for range 10 {
			ref := Ref{Name: api.Name(names.Draw(rt, "name")), Instance: api.Generation(number("instance"))}
			if n, ok := tree.Get(ref.Name); ok && rapid.Bool().Draw(rt, "present") {
				ref = n.Ref()
			}
			by := Owner{Session: api.SessionID(number("session")), Handle: api.HandleID(number("handle"))}
			arbitrary(rt, &tree, ref, by, number)
			if err := tree.Check(); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// arbitrary does one operation with arbitrary arguments.
func arbitrary(t *rapid.T, tree *Tree, ref Ref, by Owner, number func(string) uint64) {
	next := func() api.Generation { return api.Generation(number("next")) }
	text := strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "text"))
	ephemeral := rapid.Bool().Draw(t, "ephemeral")
	switch rapid.IntRange(0, 12).Draw(t, "operation") {
	case 0, 1:
		kind, acl := api.Kind(number("kind")), api.ACL{Write: text}
		_, _ = tree.Create(ref.Name, Spec{Kind: kind, Ephemeral: ephemeral, Contents: []byte(text), ACL: acl, Opener: by}, next())
	case 2, 3:
		delay, mode := time.Duration(number("delay")), api.LockMode(number("mode"))
		_, _ = tree.Acquire(ref, Holder{Owner: by, Delay: delay, Reason: text}, mode, next)
	case 4:
		_, _ = tree.SetContents(ref, Write{Contents: []byte(text)}, func() api.Generation { return next() })
	case 5:
		_, _ = tree.Open(ref, by)
	case 6:
		_, _ = tree.Close(ref, by)
	case 7:
		_ = tree.Delete(ref, by)
	case 8:
		tree.DropSession(by.Session, true, func() uint64 { return number("id") })
	case 9:
		_, _ = tree.Revoke(ref, refusal.Intervention{Why: text})
		tree.Evict(ref, api.Generation(number("generation")), []Owner{by, by})
	case 10:
		limit := Usage{Nodes: int(number("nodes")), Bytes: int64(number("bytes"))}
		_, _ = tree.SetQuota(ref, limit)
		_ = tree.CheckQuota(ref.Name, limit)
	case 11:
		_, _ = tree.SetACL(ref, api.ACL{Read: text}, nil, func() api.Generation { return next() })
		tree.Admits(string(ref.Name), text)
		tree.MissingACL(api.ACL{Change: string(ref.Name)})
	case 12:
		tree.Remove(ref)
		tree.EndDelay(ref.Name, number("id"))
		for range tree.Locked(ref.Name) {
		}
		for range tree.Children(ref.Name, text) {
		}
	}
}
