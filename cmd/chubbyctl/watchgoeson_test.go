package main

import (
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
				kinds, _ := wantedKinds(nil, c.children, true)
				w := s.watch(kinds, c.path)
				end := s.begin(w.runWatch)
				s.put(file, "1") // it is seen before
				s.put(dir+"/c", "1")
				s.put(dir+"/c", "2")
				s.pass(time.Second)
				before := len(w.runs)
				if before == 0 {
					t.Fatal("CMD does not run")
				}
				s.away(func() { c.meanwhile(s) })
				if got := strings.Join(w.runs[before:], " "); got != c.runs {
					t.Errorf("CMD ran for %q, want %q; printed\n%s", got, c.runs, &w.printed)
				}
				if n := strings.Count(w.printed.String(), `"events-lost"`); n != map[bool]int{false: 1, true: 0}[c.ends] {
					t.Errorf("%d lines say that events were lost:\n%s", n, &w.printed)
				}
				before = len(w.runs)
				if !c.ends {
					s.put(file, "9")
					s.put(dir+"/d", "9")
					s.pass(time.Second)
					if len(w.runs) == before {
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
		begin := func(tree bool, kinds []api.EventKind, paths ...string) (*watch, func() error) {
			w := s.watch(kinds, paths...)
			w.tree, w.contents, w.initial, w.err, w.note = tree, contentsText, true, s.g.stderr, noteContents
			return w, s.begin(w.runWatch)
		}
		tree, endTree := begin(true, []api.EventKind{api.EventContentsModified, api.EventChildRemoved}, "/ls/local/t", "/ls/local/later")
		several, endSeveral := begin(false, []api.EventKind{api.EventContentsModified}, "/ls/local/one", "/ls/local/two")
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
		if got := strings.Join(tree.runs, " "); got != "t/old=1 t/old=2 t/deep/new=new later/x=x t/old=3" {
			t.Errorf("of the trees CMD had %s", got)
		}
		if got := strings.Join(several.runs, " "); got != "one=1 two=1 two=2 one=2 one=3" {
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
				w := s.watch([]api.EventKind{api.EventContentsModified}, "/ls/local/one", "/ls/local/two")
				w.contents, w.initial, w.first = contentsText, c.initial, 2*outage
				w.backlog = newBacklog(settling{quiet: c.settle})
				w.settle = w.backlog.settle
				w.note = func(h happening) string {
					if g := h.fields.ContentGeneration; h.fields.Event == initialEvent && h.Generation != g {
						t.Errorf("%s: the generation is %d, and that of the contents %d", h.Path, h.Generation, g)
					}
					return h.fields.Event + " " + noteContents(h)
				}
				end := s.begin(w.runWatch)
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
				if got := strings.Join(w.runs, ", "); got != c.runs {
					t.Errorf("CMD ran for %s; want %s; printed\n%s", got, c.runs, &w.printed)
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
		w := s.watch(ofChildren(), dir)
		w.first = 10 * time.Minute
		end := s.begin(w.runWatch)
		for range api.MaxEventQueue + 100 {
			s.put(dir+"/x", "1")
			s.ok(s.author.Delete(s.Context(), dir+"/x"))
		}
		s.ok(s.author.Delete(s.Context(), dir))
		s.pass(20 * time.Minute)
		err := end()
		if n := len(w.runs); n < 2*api.MaxEventQueue || w.runs[n-1] != "handle-invalid" || exitCode(err) != exitFailed {
			t.Errorf("CMD ran %d times, at last for %s; it ended with %v", n, w.runs[n-1], err)
		}
	})
}

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
				s.readers()
				s.put(file, "1")
				s.ok(s.author.MkdirAll(s.Context(), dir))
				s.permit(c.path, "all")
				s.put(dir+"/a", "1")
				w := s.watch([]api.EventKind{c.kind}, c.path)
				end := s.begin(w.runWatch)
				s.permit(c.path, "authors")
				c.meanwhile(s)
				s.permit(c.path, "all")
				s.pass(10 * time.Minute)
				s.ok(end())
				if n := len(w.runs); n != c.lost || strings.Count(w.printed.String(), `"events-lost"`) != c.lost || strings.Count(w.printed.String(), "\n") != c.lost {
					t.Errorf("CMD ran %d times, want %d; printed\n%s", len(w.runs), c.lost, &w.printed)
				}
			})
		})
	}
}
