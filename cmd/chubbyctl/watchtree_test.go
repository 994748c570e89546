package main

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A session ends while the backlog is full, as CMD runs for long: what did not fit is told in the next, too.
func TestTreeKeepsWhatDidNotFit(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		w := s.watch([]api.EventKind{api.EventContentsModified}, "/ls/local/t")
		w.tree, w.first, w.note = true, 2*outage, func(h happening) string { return h.Path }
		end := s.begin(w.runWatch)
		want := map[string]bool{}
		write := func(i int) {
			path := fmt.Sprintf("/ls/local/t/%d", i)
			want[path] = true
			s.put(path, "1")
		}
		write(0)
		s.pass(time.Second)
		for i := range api.MaxEventQueue + 20 {
			write(1 + i)
		}
		s.pass(time.Second)
		s.away(func() {})
		s.pass(2 * outage)
		s.ok(end())
		had := map[string]bool{}
		for _, path := range w.runs {
			had[path] = true
		}
		if !maps.Equal(had, want) {
			t.Errorf("CMD ran for %d files of %d", len(had), len(want))
		}
	})
}

// What may not be read for a while is not removed, and what is the same afterwards is not told again: neither of a directory, nor of one
// below it, nor of a file.
func TestTreeThatMayNotBeReadForAWhile(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.readers()
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t/d/deep"))
		for _, name := range []string{"t/d/a", "t/d/gone", "t/d/deep/b", "t/d/deep/written", "t/d/deep/gone", "t/f"} {
			s.put("/ls/local/"+name, "1")
		}
		for _, initial := range []bool{true, false} {
			w := s.watch([]api.EventKind{api.EventContentsModified, api.EventChildAdded, api.EventChildRemoved}, "/ls/local/t")
			w.tree, w.contents, w.initial, w.note = true, contentsText, initial, noteContents
			for _, path := range []string{"/ls/local/t/d", "/ls/local/t/f"} {
				s.permit(path, "all")
			}
			s.put("/ls/local/t/d/gone", "1")
			s.put("/ls/local/t/d/deep/gone", "1")
			s.put("/ls/local/t/d/deep/written", "1")
			end := s.begin(w.runWatch)
			s.pass(time.Second)
			w.runs = nil
			w.printed.Reset()
			for _, path := range []string{"/ls/local/t/d", "/ls/local/t/f"} {
				s.permit(path, "authors")
			}
			s.pass(time.Minute)
			if w.printed.Len() > 0 || len(w.runs) > 0 {
				t.Errorf("when it may not be read, CMD runs for %q; printed\n%s", w.runs, &w.printed)
			}
			s.put("/ls/local/t/d/deep/written", "2")
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d/gone"))
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d/deep/gone"))
			s.pass(time.Minute)
			for _, path := range []string{"/ls/local/t/d", "/ls/local/t/f"} {
				s.permit(path, "all")
			}
			s.pass(time.Minute)
			if got := strings.Join(w.runs, " "); got != "t/d/deep/written=2" {
				t.Errorf("when it may be read again, CMD runs for %q", got)
			}
			if n, removed := strings.Count(w.printed.String(), "\n"), strings.Count(w.printed.String(), `child-removed`); n != 3 || removed != 2 {
				t.Errorf("when it may be read again, it prints\n%s", &w.printed)
			}
			s.ok(end())
		}
	})
}

// A tree with contents goes on beside an ephemeral directory, and CMD has a file that could not be read at first as soon as it can be.
func TestTreeHasWhatCannotBeFollowed(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.put("/ls/local/acl/readers", "author\n")
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		adapt := s.g.adapt
		s.g.adapt = func(cfg *client.Config) { adapt(cfg); cfg.As = "reader" }
		w := s.watch([]api.EventKind{api.EventContentsModified, api.EventChildAdded, api.EventChildRemoved}, "/ls/local/t")
		w.tree, w.contents = true, contentsText
		w.note = func(h happening) string { return h.fields.Event + " " + noteContents(h) }
		end := s.begin(w.runWatch)
		dir, err := s.author.Open(s.Context(), "/ls/local/t/up", client.OpenOptions{Write: true, Create: client.NewDirectory, Ephemeral: true})
		s.ok(err)
		s.pass(time.Minute)
		s.ok(dir.Close(s.Context()))
		acl := api.ACL{Read: "readers", Write: "readers", Change: "readers"}
		file, err := s.author.Open(s.Context(), "/ls/local/t/f", client.OpenOptions{Write: true, Create: client.NewFile, ACL: acl, Contents: []byte("1")})
		s.ok(err)
		s.ok(file.Close(s.Context()))
		s.pass(time.Minute)
		if len(w.runs) > 0 {
			t.Errorf("without contents CMD runs for %q", w.runs)
		}
		s.put("/ls/local/acl/readers", "author\nreader\n")
		s.pass(5 * time.Minute)
		if got := strings.Join(w.runs, " "); got != "contents-modified t/f=1" {
			t.Errorf("CMD runs for %q; printed\n%s", got, &w.printed)
		}
		s.ok(end())
	})
}

// watchTree begins a watch of /ls/local/t, and returns what it prints.
func (s *followed) watchTree(settle time.Duration, kinds ...api.EventKind) (out *bytes.Buffer, end func() error) {
	w := s.watch(kinds, "/ls/local/t")
	w.tree, w.backlog = true, newBacklog(settling{quiet: settle})
	return &w.printed, s.begin(w.runWatch)
}

// What waits when there is no tree any more is told before the end.
func TestTreeEndsAfterWhatWaits(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		s.put("/ls/local/t/a", "1")
		out, end := s.watchTree(time.Minute, api.EventChildRemoved)
		s.ok(s.author.Delete(s.Context(), "/ls/local/t/a"))
		s.pass(time.Second)
		s.ok(s.author.Delete(s.Context(), "/ls/local/t"))
		s.put("/ls/local/t", "a file")
		s.pass(time.Hour)
		err := end()
		if !strings.Contains(out.String(), `"child":"a"`) || exitCode(err) != exitFailed {
			t.Errorf("it ended with %v; printed %q", err, out)
		}
	})
}

// What is removed is told, whatever has taken its place: a directory that of a file, or a directory that cannot be followed that of one
// with files in it.
func TestTreeTellsWhatWasReplaced(t *testing.T) {
	for what, c := range map[string]struct {
		replace func(s *followed)
		want    string // the children that are removed
	}{
		"a file by a directory": {func(s *followed) {
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/a"))
			s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t/a"))
		}, `"child":"a"`},
		"a directory by a file": {func(s *followed) {
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d/b"))
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d"))
			s.put("/ls/local/t/d", "1")
		}, `"child":"b" "child":"d"`},
		"a directory by an ephemeral one": {func(s *followed) {
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d/b"))
			s.ok(s.author.Delete(s.Context(), "/ls/local/t/d"))
			_, err := s.author.Open(s.Context(), "/ls/local/t/d", client.OpenOptions{Write: true, Create: client.NewDirectory, Ephemeral: true})
			s.ok(err)
		}, `"child":"b"`},
	} {
		for _, away := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, away %v", what, away), func(t *testing.T) {
				withFollowed(t, func(s *followed) {
					s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t/d"))
					s.put("/ls/local/t/a", "1")
					s.put("/ls/local/t/d/b", "1")
					out, end := s.watchTree(0, api.EventChildRemoved)
					if away {
						s.away(func() { c.replace(s) })
					} else {
						c.replace(s)
					}
					s.pass(time.Minute)
					s.ok(end())
					for want := range strings.SplitSeq(c.want, " ") {
						if strings.Count(out.String(), want) != 1 {
							t.Errorf("%s is to be told once; printed\n%s", want, out)
						}
					}
				})
			})
		}
	}
}

// CMD runs once for each version of a file, also if the file is made again while an event of it waits.
func TestTreeTellsEachGenerationOnce(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		s.put("/ls/local/t/a", "1")
		w := s.watch([]api.EventKind{api.EventContentsModified}, "/ls/local/t")
		w.tree, w.contents, w.first, w.note = true, contentsText, time.Minute, noteContents
		end := s.begin(w.runWatch)
		s.put("/ls/local/t/b", "1")
		s.pass(time.Second)
		s.put("/ls/local/t/a", "2")
		s.pass(time.Second)
		s.ok(s.author.Delete(s.Context(), "/ls/local/t/a"))
		s.put("/ls/local/t/a", "3")
		s.pass(2 * time.Minute)
		s.ok(end())
		if got := strings.Join(w.runs, " "); got != "t/b=1 t/a=3" {
			t.Errorf("CMD ran for %q", got)
		}
	})
}
