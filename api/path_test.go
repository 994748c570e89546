package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
)

func TestPathGrammar(t *testing.T) {
	deep := "/ls/c" + strings.Repeat("/a", api.MaxDepth)
	for _, good := range []string{"/ls/local", "/ls/foo/a", "/ls/foo.example-1_x/ü/…", deep, "/ls/c/" + strings.Repeat("x", api.MaxComponent)} {
		p, err := api.ParsePath(good)
		if err != nil || p.String() != good {
			t.Errorf("ParsePath(%q) = %v, %v", good, p, err)
		}
	}
	for _, bad := range []string{
		"", "/", "/ls", "/ls/", "ls/foo", "/xs/foo", "/ls/foo/", "/ls/foo//a", "/ls/foo/.", "/ls/foo/../a",
		"/ls/foo/a\x00", "/ls/foo/a\n", "/ls/foo/\xff", "/ls/foo/a\u200b", "/ls/foo/\u202e", "/ls/foo/a\u2028b", "/ls/f o/a", "/ls/ü/a",
		deep + "/a", "/ls/c/" + strings.Repeat("x", api.MaxComponent+1), "/ls/c" + strings.Repeat("/"+strings.Repeat("y", 200), 6),
	} {
		if p, err := api.ParsePath(bad); !errors.Is(err, api.InvalidPath) {
			t.Errorf("ParsePath(%q) = %v, %v, want InvalidPath", bad, p, err)
		}
	}
}

func TestPathParts(t *testing.T) {
	p := api.MustParsePath("/ls/foo/a/b")
	if p.Cell() != "foo" || p.Name() != "/a/b" || p.Depth() != 2 || p.Base() != "b" || p.Parent().String() != "/ls/foo/a" {
		t.Errorf("parts of %v: %q %q %d %q %v", p, p.Cell(), p.Name(), p.Depth(), p.Base(), p.Parent())
	}
	root := api.MustParsePath("/ls/foo")
	if !root.IsRoot() || root.Name() != "" || root.Parent() != root || p.Parent().Parent() != root || p.IsRoot() {
		t.Errorf("the root is not its own parent: %v", root.Parent())
	}
	if q, err := p.Name().In("bar"); err != nil || q.String() != "/ls/bar/a/b" || q.Name() != p.Name() {
		t.Errorf("the same node in another cell: %v, %v", q, err)
	}
	if n := p.Name(); n.Base() != "b" || n.Parent() != "/a" || n.Parent().Parent() != "" || n.Depth() != 2 {
		t.Errorf("parts of the name %q", n)
	}
	if q, err := p.Join("c/d"); err != nil || q.Name() != "/a/b/c/d" {
		t.Errorf("Join: %v, %v", q, err)
	}
}

// A path that is accepted is canonical: its parts make it again, and it contains
// nothing that the grammar forbids.
func FuzzParsePath(f *testing.F) {
	seeds.Add(f)
	for _, seed := range []string{"/ls/local", "/ls/foo/a/b", "/ls/foo//", "/ls/foo/..", "/ls/\u200b/x", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := api.ParsePath(text)
		if err != nil {
			if !errors.Is(err, api.InvalidPath) || len(err.Error()) > 2048 {
				t.Fatalf("ParsePath(%q): %v", text, err)
			}
			return
		}
		q, err := p.Name().In(p.Cell())
		if err != nil || q != p || p.String() != text || len(text) > api.MaxPath || p.Depth() > api.MaxDepth {
			t.Fatalf("%q is not canonical: %v, %v", text, q, err)
		}
		if !p.IsRoot() {
			if q, err := p.Parent().Join(p.Base()); err != nil || q != p {
				t.Fatalf("%q is not its parent and base: %v, %v", text, q, err)
			}
		}
	})
}

// A path names the cell first. What is not a path is said with what is wrong with it.
func ExampleParsePath() {
	path, err := api.ParsePath("/ls/foo/svc/primary")
	fmt.Println(path.Cell(), path, err)
	_, err = api.ParsePath("/etc/passwd")
	fmt.Println(errors.Is(err, api.InvalidPath))
	// Output:
	// foo /ls/foo/svc/primary <nil>
	// true
}

// Every error of a call has a code, which errors.Is asks for, also through other errors; with it
// come facts, such as who holds a lock.
func ExampleError() {
	refused := api.Errorf(api.LockHeld, "the lock is held")
	refused.Holders = []api.Holder{{Principal: "web1", Reason: "nightly backup"}}
	err := fmt.Errorf("back up: %w", refused)

	fmt.Println(errors.Is(err, api.LockHeld), api.CodeOf(err))
	var e *api.Error
	if errors.As(err, &e) {
		fmt.Println(e.Holders[0].Principal, "for", e.Holders[0].Reason)
	}
	// Output:
	// true LockHeld
	// web1 for nightly backup
}
