package namespace_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/namespace"
)

// lists returns a tree with these access control lists.
func lists(t testing.TB, files map[string]string) *cell {
	t.Helper()
	w := newWorld()
	for name, spec := range map[api.Name]namespace.Spec{"/acl": {Kind: api.Directory}, "/file": {Kind: api.File}, "/dir": {Kind: api.Directory}} {
		must(w.tree.Create(name, spec, w.drawGeneration()))(t)
	}
	for name, contents := range files {
		must(w.tree.Create(namespace.ACLFile(name), namespace.Spec{Kind: api.File, Contents: []byte(contents)}, w.drawGeneration()))(t)
	}
	only, _ := t.(*testing.T)
	return &cell{T: only, world: *w}
}

// Chubby §2.3: if a file's write ACL name is foo and the ACL directory has a
// file foo with an entry bar, bar may write.
func TestPaperACLsAreFiles(t *testing.T) {
	c := lists(t, map[string]string{"foo": "bar\n"})
	n := c.create("/f", namespace.Spec{ACL: api.ACL{Read: "none", Write: "foo", Change: "none"}})
	c.want(c.tree.Permit(n, "bar", namespace.ToWrite), api.OK)
	c.want(c.tree.Permit(n, "baz", namespace.ToWrite), api.PermissionDenied)
	c.want(c.tree.Permit(n, "bar", namespace.ToRead|namespace.ToWrite), api.PermissionDenied)
	file, _ := c.tree.Get("/acl/foo")
	must(c.tree.SetContents(file.Ref(), namespace.Write{Contents: []byte("baz")}, c.drawGeneration))(t)
	c.want(c.tree.Permit(n, "bar", namespace.ToWrite), api.PermissionDenied)
	c.want(c.tree.Permit(n, "baz", namespace.ToWrite), api.OK)
}

// The lines of a list, one rule each (the comment of Admits).
func TestAdmits(t *testing.T) {
	long := strings.Repeat("p", api.MaxPrincipal)
	c := lists(t, map[string]string{
		"plain": "alice\nbob", "crlf": "alice\r\n@far\r\n", "spaced": "  alice\t\n\t# bob\n", "any": "# first\n\n*\n", "empty": "",
		"comment": "#alice\n# bob\n", "far": "dave\n@near\n", "near": "@far\nerin\n", "self": "@self\n",
		"missing": "@nowhere\nalice\n", "folder": "@sub\n@../file\n@/file\nalice\n", "nothing": "@\n@ \n", "odd": "@ops\n#x\n*x\n", "ops": "carol",
		"case": "Alice", "long": long, "late": "zoe\n@plain\n@any", "bytes": "\xff\n\x00\nalice",
	})
	c.create("/acl/sub", namespace.Spec{Kind: api.Directory})
	c.create("/acl/sub/inner", namespace.Spec{Contents: []byte("alice")})
	for _, want := range []struct {
		acl, principal string
		admitted       bool
		why            string
	}{
		{"plain", "alice", true, "a principal, to the letter"},
		{"plain", "bob", true, "the last line needs no end"},
		{"plain", "carol", false, "not named"},
		{"plain", "ali", false, "a name is a whole line"},
		{"plain", "alice\nbob", false, "a name is one line"},
		{"case", "alice", false, "to the letter"},
		{"long", long, true, "the longest principal"},
		{"crlf", "alice", true, "CRLF"},
		{"crlf", "erin", true, "CRLF after an included list"},
		{"spaced", "alice", true, "space around a name"},
		{"spaced", "# bob", false, "space before a comment"},
		{"comment", "alice", false, "a comment"},
		{"comment", "#alice", false, "a principal that looks like a comment is not named by one"},
		{"odd", "#x", false, "a principal that looks like a comment is not named by one"},
		{"odd", "@ops", false, "a principal that looks like a list is not named by its inclusion"},
		{"odd", "carol", true, "an included list"},
		{"odd", "*", false, "a principal called * is not anybody"},
		{"odd", "*x", true, "only a * alone is anybody"},
		{"any", "zoe", true, "anybody"},
		{"any", "", true, "anybody, also those without an identity"},
		{"any", "#x", true, "anybody"},
		{"plain", "", false, "who has no identity is not named by an empty line"},
		{"comment", "", false, "who has no identity is not named by an empty line"},
		{"empty", "", false, "who has no identity is not named by an empty file"},
		{"empty", "alice", false, "an empty list"},
		{"far", "erin", true, "a list that includes another"},
		{"near", "dave", true, "a cycle, from its other side"},
		{"far", "alice", false, "a cycle ends"},
		{"self", "alice", false, "a list that includes itself admits nobody by that"},
		{"missing", "alice", true, "a list that is not there does no harm to the rest"},
		{"missing", "bob", false, "a list that is not there admits nobody"},
		{"folder", "alice", true, "a directory in the place of a list does no harm to the rest"},
		{"folder", "bob", false, "a directory in the place of a list admits nobody"},
		{"sub", "alice", false, "a directory is no list"},
		{"nothing", "", false, "the empty name is of no list"},
		{"late", "alice", true, "all lines count"},
		{"late", "dave", true, "all lines count"},
		{"bytes", "alice", true, "what is no text does no harm to the rest"},
		{"bytes", "\x00", true, "to the letter"},
		{"", "alice", false, "no name is no list"},
		{"nowhere", "alice", false, "no list"},
		{"../file", "alice", false, "no list"},
	} {
		if got := c.tree.Admits(want.acl, want.principal); got != want.admitted {
			t.Errorf("does %q admit %q? %v; %s", want.acl, want.principal, got, want.why)
		}
	}
}

// The number of lists that one question reads is bounded, so that no client can
// stop the log. Lists beyond the bound admit nobody.
func TestAdmitsReadsSoManyFilesOnly(t *testing.T) {
	chain := map[string]string{}
	for i := range 70 {
		chain[fmt.Sprint("l", i)] = fmt.Sprintf("p%d\n@l%d\n", i, i+1)
	}
	chain["wide"] = ""
	for i := range 70 {
		chain["wide"] += fmt.Sprintf("@w%d\n", i)
		chain[fmt.Sprint("w", i)] = fmt.Sprintf("q%d\n@w%d", i, (i+69)%70) // a cycle: Admits reads each list once
	}
	c := lists(t, chain)
	for i := range 70 {
		if got := c.tree.Admits("l0", fmt.Sprint("p", i)); got != (i < 64) {
			t.Errorf("does the chain admit the principal of list %d? %v", i+1, got)
		}
	}
	admitted := 0
	for i := range 70 {
		if c.tree.Admits("wide", fmt.Sprint("q", i)) {
			admitted++
		}
	}
	if admitted != 63 { // and the list wide itself
		t.Errorf("a list of 70 lists admits the principals of %d, want 63", admitted)
	}
}

// Chubby §2.3: three lists a node, for reading, writing and changing the ACL
// names; no right includes another.
func TestPermit(t *testing.T) {
	c := lists(t, map[string]string{"r": "ann", "w": "ann\nbob", "c": "cid"})
	n := c.create("/f", namespace.Spec{ACL: api.ACL{Read: "r", Write: "w", Change: "c"}})
	has := map[string]namespace.Rights{"ann": namespace.ToRead | namespace.ToWrite, "bob": namespace.ToWrite, "cid": namespace.ToChange, "": 0}
	for principal, rights := range has {
		for wanted := range namespace.Rights(8) {
			err := c.tree.Permit(n, principal, wanted)
			if ok := wanted&^rights == 0; ok != (err == nil) {
				t.Errorf("%q has %03b and wants %03b: %v", principal, rights, wanted, err)
			} else if !ok {
				c.want(err, api.PermissionDenied)
			}
		}
	}
	if err := c.tree.Permit(n, "bob", namespace.ToChange|namespace.ToWrite); !strings.Contains(err.Error(), "/acl/c") {
		t.Errorf("%v does not say which list would have to name bob", err)
	}
	if err := c.tree.Permit(n, "ann", 1<<7); err != nil {
		t.Errorf("an unknown right was refused: %v", err)
	}
}

// Chubby §2.3, §2.6: SetACL changes the names and the ACL generation. A caller
// may demand the present generation. Names that are left out stay.
func TestSetACL(t *testing.T) {
	c := lists(t, nil)
	ref := c.create("/f", namespace.Spec{Contents: []byte("x")}).Ref()
	before := *c.node("/f")
	one := before.ACLs
	n, err := c.tree.SetACL(ref, api.ACL{Write: "w"}, &one, c.drawGeneration)
	c.want(err, api.OK)
	want := before
	two := n.ACLs
	want.ACL, want.ACLs = api.ACL{Read: "all", Write: "w", Change: "few"}, one+1
	if fmt.Sprint(*n) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", *n, want)
	}
	_, err = c.tree.SetACL(ref, api.ACL{Write: "other"}, &one, c.drawGeneration)
	if e := c.want(err, api.GenerationMismatch); e.Current != two {
		t.Errorf("the error names generation %d", e.Current)
	}
	_, err = c.tree.SetACL(ref, api.ACL{Change: strings.Repeat("x", api.MaxACLName+1)}, nil, c.drawGeneration)
	c.want(err, api.InvalidArgument)
	_, err = c.tree.SetACL(namespace.Ref{Name: "/f", Instance: ref.Instance + 1}, api.ACL{Read: "r"}, nil, c.drawGeneration)
	c.want(err, api.HandleClosed)
	if c.node("/f") != n {
		t.Error("a refused change has changed the node")
	}
	n, err = c.tree.SetACL(ref, api.ACL{Read: "r", Write: "w", Change: strings.Repeat("x", api.MaxACLName)}, &two, c.drawGeneration)
	c.want(err, api.OK)
	if n.ACLs != two+1 || n.ACL.Read != "r" {
		t.Errorf("%+v", n)
	}
	root := c.node("").Ref()
	if n, err = c.tree.SetACL(root, api.ACL{Read: "mine"}, nil, c.drawGeneration); err != nil || n.ACL.Read != "mine" {
		t.Errorf("the root: %+v, %v", n, err)
	}
	c.want(c.tree.Check(), api.OK)
}

// An ACL name without a list would lock out every client.
func TestMissingACL(t *testing.T) {
	c := lists(t, map[string]string{"a": "", "b": ""})
	c.create("/acl/dir", namespace.Spec{Kind: api.Directory})
	for _, want := range []struct {
		acl     api.ACL
		missing string
	}{
		{api.ACL{}, ""}, {api.ACL{Read: "a", Write: "b", Change: "a"}, ""}, {api.ACL{Read: "x", Write: "y"}, "x"}, {api.ACL{Write: "y", Change: "x"}, "y"},
		{api.ACL{Read: "a", Change: "x"}, "x"}, {api.ACL{Write: "dir"}, "dir"}, {api.ACL{Write: "../file"}, "../file"},
	} {
		if name, missing := c.tree.MissingACL(want.acl); name != want.missing || missing != (want.missing != "") {
			t.Errorf("%+v lacks %q, %v; want %q", want.acl, name, missing, want.missing)
		}
	}
}

// twinAdmits is a simple Admits: it follows every inclusion, to a depth of the
// number of lists.
func twinAdmits(files map[string]string, acl, principal string) bool {
	reached := map[string]bool{acl: true}
	for range len(files) + 1 {
		for name := range reached {
			for line := range strings.SplitSeq(files[name], "\n") {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "@") {
					reached[line[1:]] = true
				}
			}
		}
	}
	for name := range reached {
		if name == "" {
			continue
		}
		for line := range strings.SplitSeq(files[name], "\n") {
			line = strings.TrimSpace(line)
			if line == "*" || line == principal && line != "" && line[0] != '#' && line[0] != '@' {
				return true
			}
		}
	}
	return false
}

// FuzzAdmits compares Admits with the twin for arbitrary lists and principals.
func FuzzAdmits(f *testing.F) {
	seeds.Add(f)
	f.Add("alice\n@b\n", "@c\r\n@a", "*", "zoe")
	f.Add("#alice\n\n", "@b", "@a\n@b\n@c\n@d\n@", "#alice")
	f.Add("@b", "@c", "bob", "bob")
	f.Add("\xff\r\r\n@\x00", "", "@", "@")
	f.Add("", "\u00a0alice\u2028", " * ", "")
	f.Fuzz(func(t *testing.T, a, b, c, principal string) {
		files := map[string]string{"a": a, "b": b, "c": c}
		for _, contents := range files {
			if len(contents) > api.MaxContents || strings.Count(contents, "@") > 15 {
				return // Admits would not read all of them
			}
		}
		tree := lists(t, files).tree
		for name := range files {
			if got, want := tree.Admits(name, principal), twinAdmits(files, name, principal); got != want {
				t.Errorf("does %s of %q admit %q? %v; the twin says %v", name, files, principal, got, want)
			}
		}
	})
}

// longLists makes as many lists as one question may read, each as long as a file may be and
// including the next. Members u0 to uN are in all of them, the member last only in the last list.
func longLists(tb testing.TB, number int) (tree namespace.Tree, members int) {
	tb.Helper()
	w := newWorld()
	create := func(name api.Name, spec namespace.Spec) {
		must(w.tree.Create(name, spec, w.drawGeneration()))(tb)
	}
	create(api.ACLDir, namespace.Spec{Kind: api.Directory})
	var all strings.Builder
	for all.Len() < api.MaxContents-100 {
		fmt.Fprintf(&all, "u%d\n", members)
		members++
	}
	for i := range number {
		text := all.String() + fmt.Sprintf("@l%d\n", i+1)
		if i == number-1 {
			text = all.String() + "last\n"
		}
		create(namespace.ACLFile(fmt.Sprintf("l%d", i)), namespace.Spec{Kind: api.File, Contents: []byte(text)})
	}
	return w.tree, members
}

// Admits uses the parsed list and does not parse it for every Open: every
// replica's state machine calls it.
func TestLongListsAreLookedUp(t *testing.T) {
	tree, members := longLists(t, 64)
	began := time.Now()
	for i := range 20 {
		if !tree.Admits("l0", fmt.Sprintf("u%d", i*members/20)) || tree.Admits("l0", fmt.Sprintf("x%d", i)) {
			t.Fatalf("question %d has the wrong answer", i)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("40 questions took %v", took)
	}
	if !tree.Admits("l0", "last") {
		t.Error("the list at the end of 64 does not count")
	}
	if tree, _ := longLists(t, 65); tree.Admits("l0", "last") {
		t.Error("65 lists were looked at")
	}
}

// Lists that include very many others are bounded too.
func TestManyIncludes(t *testing.T) {
	w := newWorld()
	create := func(name api.Name, spec namespace.Spec) {
		must(w.tree.Create(name, spec, w.drawGeneration()))(t)
	}
	create(api.ACLDir, namespace.Spec{Kind: api.Directory})
	var includes strings.Builder
	for i := 0; includes.Len() < api.MaxContents-20; i++ {
		fmt.Fprintf(&includes, "@m%d\n", i%30_000)
	}
	create(namespace.ACLFile("wide"), namespace.Spec{Kind: api.File, Contents: []byte(includes.String())})
	create(namespace.ACLFile("m5"), namespace.Spec{Kind: api.File, Contents: []byte("early")})
	create(namespace.ACLFile("m62"), namespace.Spec{Kind: api.File, Contents: []byte("last")})
	create(namespace.ACLFile("m63"), namespace.Spec{Kind: api.File, Contents: []byte("late")})
	for principal, want := range map[string]bool{"early": true, "last": true, "late": false, "": false, "@m5": false} {
		if got := w.tree.Admits("wide", principal); got != want {
			t.Errorf("Admits(%q) = %v, want %v", principal, got, want)
		}
	}
}

// A list keeps nothing of its comments in memory, beside the contents of the file: not even a list of
// one member.
func TestListKeepsNoComments(t *testing.T) {
	c := newCell(t)
	c.create(api.ACLDir, namespace.Spec{Kind: api.Directory})
	contents := []byte("# " + strings.Repeat("x", api.MaxContents-20) + "\nalice\n") // which all lists share
	inUse := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const lists = 32
	before := inUse()
	for i := range lists {
		c.create(namespace.ACLFile(fmt.Sprint("l", i)), namespace.Spec{Contents: contents})
	}
	if kept := inUse() - before; kept > lists*api.MaxContents/2 {
		t.Errorf("%d lists of one member keep %d bytes", lists, kept)
	}
	if !c.tree.Admits("l0", "alice") {
		t.Error("the list does not admit its member")
	}
	runtime.KeepAlive(contents)
}
