package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/celltest"
)

// After an error nothing is done for the paths behind it, and they are named.
func TestSeveralPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
		s.run("put a 1")
		s.run("put b 2")
		for _, c := range []struct {
			line, printed string
			said          string
		}{
			{"rm no a", "", "; not done: /ls/local/a\n"},
			{"rm no a b", "", "; not done: /ls/local/a and 1 more\n"},
			{"cat a no b", "1", "; not done: /ls/local/b\n"},
			{"cat a b no", "12", "no such node"},
		} {
			out, said, code := s.try("", c.line)
			if code != exitFailed || out != c.printed || !strings.Contains(said, c.said) || strings.Contains(said, "not done") != strings.Contains(c.said, "not done") {
				t.Errorf("%s: %d, %q, %q; want %q, %q", c.line, code, out, said, c.printed, c.said)
			}
		}
		if said, err := s.answer(full{}, "stat a b"); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(said, "; not done: /ls/local/b\n") {
			t.Errorf("on a full disk: %v; it says %q", err, said)
		}
		if out := s.run("cat a b"); !strings.Contains(out, "12") {
			t.Errorf("there is %q", out)
		}
	})
}
