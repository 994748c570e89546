package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A watch that was away for longer than its session goes on: it says so in one line, and runs CMD once if, and only if, what it watches is
// another than at its last run; it ends if the node is gone.
func TestWatchGoesOn(t *testing.T) {
	const file, dir = "/ls/local/file", "/ls/local/dir"
	for what, c := range map[string]struct {
		path      string
		children  bool
		meanwhile func(s *followed)
		runs      string // of CMD in the new session
		ends      bool
	}{
		"nothing":               {file, false, func(*followed) {}, "", false},
		"written":               {file, false, func(s *followed) { s.put(file, "2") }, "events-lost", false},
		"written twice":         {file, false, func(s *followed) { s.put(file, "2"); s.put(file, "3") }, "events-lost", false},
		"deleted":               {file, false, func(s *followed) { s.ok(s.author.Delete(s.Context(), file)) }, "handle-invalid", true},
		"made again":            {file, false, func(s *followed) { s.ok(s.author.Delete(s.Context(), file)); s.put(file, "2") }, "handle-invalid", true},
		"nothing in it":         {dir, true, func(*followed) {}, "", false},
		"a new child":           {dir, true, func(s *followed) { s.put(dir+"/b", "") }, "events-lost", false},
		"a child is written":    {dir, true, func(s *followed) { s.put(dir+"/a", "2") }, "events-lost", false},
		"a child is gone":       {dir, true, func(s *followed) { s.ok(s.author.Delete(s.Context(), dir+"/a")) }, "events-lost", false},
		"a child is made again": {dir, true, func(s *followed) { s.ok(s.author.Delete(s.Context(), dir+"/a")); s.put(dir+"/a", "1") }, "events-lost", false},
	} {
		t.Run(what, func(t *testing.T) {
			withFollowed(t, func(s *followed) {
				s.put(file, "1")
				s.ok(s.author.MkdirAll(s.Context(), dir))
				s.put(dir+"/a", "1")
				var out bytes.Buffer
				var runs []string
				o := watching(&out)
				o.globals, o.exec, o.paths = s.g, "a test", []api.Path{api.MustParsePath(c.path)}
				o.kinds, _ = wantedKinds(nil, c.children, true)
				o.run = func(_ context.Context, due []toldEvent) error {
					for _, one := range due {
						runs = append(runs, one.fields.Event)
					}
					return nil
				}
				end := s.begin(o.runWatch)
				s.put(file, "1") // it is seen before
				s.put(dir+"/c", "1")
				s.put(dir+"/c", "2")
				s.pass(time.Second)
				before := len(runs)
				if before == 0 {
					t.Fatal("CMD does not run")
				}
				s.away(func() { c.meanwhile(s) })
				if got := strings.Join(runs[before:], " "); got != c.runs {
					t.Errorf("CMD ran for %q, want %q; printed\n%s", got, c.runs, &out)
				}
				if n := strings.Count(out.String(), `"events-lost"`); n != map[bool]int{false: 1, true: 0}[c.ends] {
					t.Errorf("%d lines say that events were lost:\n%s", n, &out)
				}
				before = len(runs)
				if !c.ends {
					s.put(file, "9")
					s.put(dir+"/d", "9")
					s.pass(time.Second)
					if len(runs) == before {
						t.Error("what comes then is not told")
					}
				}
				err := end()
				if c.ends != (err != nil) || c.ends && (exitCode(err) != exitFailed || !strings.Contains(err.Error(), "nothing to watch any more")) {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// A tree, and several paths, are told by one command, in one session.
func TestWatchTreeAndSeveral(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		s.put("/ls/local/t/old", "1")
		s.put("/ls/local/one", "1")
		s.put("/ls/local/two", "1")
		begin := func(tree bool, paths ...string) (*[]string, func() error) {
			o := watching(io.Discard)
			o.globals, o.exec, o.tree, o.contents, o.initial, o.err = s.g, "a test", tree, contentsText, true, s.g.stderr
			o.kinds = []api.EventKind{api.EventContentsModified, api.EventChildRemoved}
			if !tree {
				o.kinds = o.kinds[:1]
			}
			for _, p := range paths {
				o.paths = append(o.paths, api.MustParsePath(p))
			}
			runs := new([]string)
			o.run = func(_ context.Context, due []toldEvent) error {
				for _, one := range due {
					*runs = append(*runs, strings.TrimPrefix(one.Path, "/ls/local/")+"="+*one.fields.Contents)
				}
				return nil
			}
			return runs, s.begin(o.runWatch)
		}
		tree, endTree := begin(true, "/ls/local/t", "/ls/local/later")
		several, endSeveral := begin(false, "/ls/local/one", "/ls/local/two")
		if n := len(s.sessions()); n != 3 {
			t.Errorf("%d sessions, want one for each command, and the author's", n)
		}
		s.put("/ls/local/two", "2")
		s.put("/ls/local/one", "2")
		s.put("/ls/local/t/old", "2")
		s.pass(time.Second)
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t/deep"))
		s.put("/ls/local/t/deep/new", "new")
		s.pass(time.Second)
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/later"))
		s.put("/ls/local/later/x", "x")
		s.pass(time.Minute)
		s.away(func() {
			s.put("/ls/local/t/old", "3")
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/deep/new"))
			s.put("/ls/local/one", "3")
		})
		s.ok(endTree())
		s.ok(endSeveral())
		if got := strings.Join(*tree, " "); got != "t/old=1 t/old=2 t/deep/new=new later/x=x t/old=3" {
			t.Errorf("of the trees CMD had %s", got)
		}
		if got := strings.Join(*several, " "); got != "one=1 two=1 two=2 one=2 one=3" {
			t.Errorf("of the files CMD had %s", got)
		}
		if !strings.Contains(s.said.String(), "CMD is not run for child-removed of /ls/local/t/deep") {
			t.Errorf("that CMD is not run is not said: %s", &s.said)
		}
	})
}

func (s *followed) sessions() (all []client.SessionInfo) {
	s.Helper()
	for one, err := range s.author.Cell().EachSession(s.Context()) {
		s.ok(err)
		all = append(all, one)
	}
	return all
}

// A session ends before CMD had what there was at the beginning of the second file, or while an event of it waits: CMD has it in the
// next session, once, and if the file is gone by then, that is told.
func TestWatchOwesWhatTheSessionDidNotTell(t *testing.T) {
	for what, c := range map[string]struct {
		initial, deleted bool
		settle           time.Duration
		runs             string
	}{
		"at the beginning":                   {true, false, 0, "initial one=1, initial two=1"},
		"at the beginning, and gone":         {true, true, 0, "initial one=1"},
		"an event waits":                     {false, false, 0, "contents-modified one=2, contents-modified two=2"},
		"an event waits, and the file goes":  {false, true, 0, "contents-modified one=2"},
		"at the beginning, things to settle": {true, false, time.Second, "initial one=1, initial two=1, events-lost one=2"},
		"at the beginning, and written":      {true, false, 0, "initial one=1, initial two=2"},
	} {
		t.Run(what, func(t *testing.T) {
			withFollowed(t, func(s *followed) {
				s.put("/ls/local/one", "1")
				s.put("/ls/local/two", "1")
				var out bytes.Buffer
				o := watching(&out)
				o.globals, o.exec, o.contents, o.initial, o.settle = s.g, "a test", contentsText, c.initial, settling{quiet: c.settle}
				o.backlog = newBacklog(o.settle)
				o.kinds, o.paths = []api.EventKind{api.EventContentsModified}, []api.Path{api.MustParsePath("/ls/local/one"), api.MustParsePath("/ls/local/two")}
				var runs []string
				o.run = func(_ context.Context, due []toldEvent) error {
					first := len(runs) == 0
					for _, one := range due {
						runs = append(runs, one.fields.Event+" "+strings.TrimPrefix(one.Path, "/ls/local/")+"="+*one.fields.Contents)
						if g := one.fields.ContentGeneration; one.fields.Event == initialEvent && one.Generation != g {
							t.Errorf("%s: the generation is %d, and that of the contents %d", runs[len(runs)-1], one.Generation, g)
						}
					}
					if first {
						<-time.After(2 * outage)
					}
					return nil
				}
				end := s.begin(o.runWatch)
				if !c.initial {
					s.put("/ls/local/one", "2")
					s.pass(time.Second)
					s.put("/ls/local/two", "2")
					s.pass(time.Second)
				}
				s.away(func() {
					if c.deleted {
						s.ok(s.author.Delete(s.Context(), "/ls/local/two"))
					}
					if c.settle > 0 {
						s.put("/ls/local/one", "2")
					}
					if strings.HasSuffix(c.runs, "initial two=2") {
						s.put("/ls/local/two", "2")
					}
				})
				s.pass(2 * outage)
				err := end()
				if c.deleted != (exitCode(err) == exitFailed && strings.Contains(err.Error(), "nothing to watch any more")) || !c.deleted && err != nil {
					t.Errorf("it ended with %v", err)
				}
				if got := strings.Join(runs, ", "); got != c.runs {
					t.Errorf("CMD ran for %s; want %s; printed\n%s", got, c.runs, &out)
				}
			})
		})
	}
}

// A node goes while more waits than is kept: CMD, which takes long, has what waits, and then the end.
func TestWatchEndsAfterWhatWaits(t *testing.T) {
	withFollowed(t, func(s *followed) {
		const dir = "/ls/local/dir"
		s.ok(s.author.MkdirAll(s.Context(), dir))
		o := watching(io.Discard)
		o.globals, o.exec, o.kinds, o.paths = s.g, "a test", ofChildren(), []api.Path{api.MustParsePath(dir)}
		var runs []string
		o.run = func(_ context.Context, due []toldEvent) error {
			if len(runs) == 0 {
				<-time.After(10 * time.Minute)
			}
			for _, one := range due {
				runs = append(runs, one.fields.Event)
			}
			return nil
		}
		end := s.begin(o.runWatch)
		for range api.MaxEventQueue + 100 {
			s.put(dir+"/x", "1")
			s.ok(s.author.Delete(s.Context(), dir+"/x"))
		}
		s.ok(s.author.Delete(s.Context(), dir))
		s.pass(20 * time.Minute)
		err := end()
		if n := len(runs); n < 2*api.MaxEventQueue || runs[n-1] != "handle-invalid" || exitCode(err) != exitFailed {
			t.Errorf("CMD ran %d times, at last for %s; it ended with %v", n, runs[n-1], err)
		}
	})
}
