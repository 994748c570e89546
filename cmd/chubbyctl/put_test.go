package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/celltest"
)

// --if-absent creates, and leaves what is there.
func TestPutIfAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, cell: celltest.Start(t, 1), ctx: t.Context()}
		for _, c := range []struct {
			line string
			code int
			said string
		}{
			{"put a 1 --if-absent", 0, ""},
			{"put a 2 --if-absent", exitMismatch, "exists already"},
			{"put a 2 --if-absent --if-generation 0", exitMismatch, "exists already"},
			{"put a 2 --if-absent --if-generation 7", exitUsage, "choose one"},
			{"put a 2 --if-absent --if-sequencer x", exitUsage, "--if-absent and --if-sequencer"},
			{"put a 2 --if-absent --ephemeral", exitUsage, "--ephemeral"},
			{"put b 2 --if-absent=false", 0, ""},
			{"put b 3 --if-absent=false", 0, ""},
		} {
			if _, said, code := s.try("", c.line); code != c.code || !strings.Contains(said, c.said) {
				t.Errorf("%s: %d, %q; want %d, %q", c.line, code, said, c.code, c.said)
			}
		}
		if out := s.run("cat a b"); !strings.Contains(out, "13") {
			t.Errorf("there is %q", out)
		}
	})
}
