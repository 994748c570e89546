package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A session ends while the backlog is full, as CMD runs for long: what did not fit is told in the next, too.
func TestTreeKeepsWhatDidNotFit(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.ok(s.author.MkdirAll(s.Context(), "/ls/local/t"))
		o := watching(io.Discard)
		o.globals, o.exec, o.tree, o.kinds = s.g, "a test", true, []api.EventKind{api.EventContentsModified}
		o.paths = []api.Path{api.MustParsePath("/ls/local/t")}
		had := map[string]bool{}
		o.run = func(_ context.Context, due []toldEvent) error {
			if len(had) == 0 {
				time.Sleep(2 * outage)
			}
			for _, one := range due {
				had[one.Path] = true
			}
			return nil
		}
		end := s.begin(o.runWatch)
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
		if !maps.Equal(had, want) {
			t.Errorf("CMD ran for %d files of %d", len(had), len(want))
		}
	})
}
