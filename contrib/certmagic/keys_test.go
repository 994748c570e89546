package chubbystorage

import (
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// Components and the names of their nodes are one to one, and each name is allowed in a path.
func FuzzComponents(f *testing.F) {
	for _, text := range []string{"a", "A", ".", "..", "...", "%", "%2E", "%c", "%.", "ü", "\xff", "a\x00b", "\u202e", " ", "~", "f%c", strings.Repeat("x", 255)} {
		f.Add(text, text+"%")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Contains(a, "/") || a == "" {
			return
		}
		name := encode(a)
		if back, ok := decode(name); !ok || back != a {
			t.Errorf("%q has the name %q, and that is the name of %q, %v", a, name, back, ok)
		}
		if component, ok := decode(b); ok && encode(component) != b {
			t.Errorf("%q is decoded as %q, whose name is %q", b, component, encode(component))
		}
		if strings.HasSuffix(name, chunkSuffix) || strings.Contains(name, cutMark) {
			t.Errorf("the name of %q is %q, which is kept for others", a, name)
		}
		if _, err := api.ParsePath("/ls/local/" + name); err != nil && len(name) <= api.MaxComponent {
			t.Errorf("the name of %q: %v", a, err)
		}
	})
}

// Each name of a lock has a path of its own, however long it is.
func TestLockPaths(t *testing.T) {
	s, err := New(nil, Config{Path: "/ls/local/x"})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 400)
	paths := map[string]string{}
	for _, name := range []string{"", "a", "a/b", "a%2Fb", ".", "..", "%.", long, long + "1", strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("/", 400), "\xff"} {
		p := s.lockPath(name)
		if other, taken := paths[p]; taken {
			t.Errorf("%q and %q have the same lock", name, other)
		}
		paths[p] = name
		if _, err := api.ParsePath(p); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
