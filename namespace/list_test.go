package namespace_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// longLists makes as many lists as one question may read, each as long as a file may be and
// including the next. Members u0 to uN are in all of them, the member last only in the last list.
func longLists(tb testing.TB, number int) (tree namespace.Tree, members int) {
	tb.Helper()
	w := newWorld()
	create := func(name api.Name, spec namespace.Spec) {
		if _, err := w.tree.Create(name, spec, w.drawGeneration()); err != nil {
			tb.Fatal(err)
		}
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
		if _, err := w.tree.Create(name, spec, w.drawGeneration()); err != nil {
			t.Fatal(err)
		}
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

func BenchmarkAdmitsLongLists(b *testing.B) {
	tree, _ := longLists(b, 64)
	for b.Loop() {
		if tree.Admits("l0", "nobody") {
			b.Fatal("admitted")
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
