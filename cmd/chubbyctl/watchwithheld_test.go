package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// No event tells of what is done while the watch may not read the node. It finds it out by itself, says so once, and runs CMD.
func TestWatchOfWhatMayNotBeReadForAWhile(t *testing.T) {
	const file, dir = "/ls/local/file", "/ls/local/dir"
	for what, c := range map[string]struct {
		path      string
		kind      api.EventKind
		meanwhile func(s *followed)
		lost      int
	}{
		"nothing":            {file, api.EventContentsModified, func(*followed) {}, 0},
		"written":            {file, api.EventContentsModified, func(s *followed) { s.put(file, "2") }, 1},
		"not asked for":      {file, api.EventLockAcquired, func(s *followed) { s.put(file, "2") }, 0},
		"a child comes":      {dir, api.EventChildAdded, func(s *followed) { s.put(dir+"/b", "1") }, 1},
		"a child goes":       {dir, api.EventChildRemoved, func(s *followed) { s.ok(s.author.Delete(s.Context(), dir+"/a")) }, 1},
		"a child is written": {dir, api.EventChildModified, func(s *followed) { s.put(dir+"/a", "2") }, 1},
		"another comes":      {dir, api.EventChildModified, func(s *followed) { s.put(dir+"/b", "1") }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			withFollowed(t, func(s *followed) {
				permit := func(names string) {
					h, err := s.author.Open(s.Context(), c.path, client.OpenOptions{ChangeACL: true})
					s.ok(err)
					_, err = h.SetACL(s.Context(), api.ACL{Read: names, Write: names, Change: names})
					s.ok(err)
					s.ok(h.Close(s.Context()))
				}
				s.put("/ls/local/acl/authors", "author\n")
				s.put("/ls/local/acl/all", "author\nreader\n")
				s.put(file, "1")
				s.ok(s.author.MkdirAll(s.Context(), dir))
				permit("all")
				s.put(dir+"/a", "1")
				var out bytes.Buffer
				o := watching(&out)
				adapt := s.g.adapt
				s.g.adapt = func(cfg *client.Config) { adapt(cfg); cfg.As = "reader" }
				o.globals, o.exec = s.g, "a test"
				o.kinds, o.paths = []api.EventKind{c.kind}, []api.Path{api.MustParsePath(c.path)}
				runs := 0
				o.run = func(context.Context, []toldEvent) error { runs++; return nil }
				end := s.begin(o.runWatch)
				permit("authors")
				c.meanwhile(s)
				permit("all")
				s.pass(10 * time.Minute)
				s.ok(end())
				if runs != c.lost || strings.Count(out.String(), `"events-lost"`) != c.lost || strings.Count(out.String(), "\n") != c.lost {
					t.Errorf("CMD ran %d times, want %d; printed\n%s", runs, c.lost, &out)
				}
			})
		})
	}
}
