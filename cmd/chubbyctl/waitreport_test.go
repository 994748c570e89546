package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// A write that waits for a client's cache says for which client, and how long at most.
func TestWaitingForACache(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		c := s.cell
		s.run("put /ls/local/config old")
		leaveWithCopy(t, c, "web8")
		short := s.run("put /ls/local/config new --timeout 2300ms")
		for _, want := range []string{"waiting for ", " to drop /ls/local/config from the cache", "at most another ", "--timeout gives up in ", "it waited for "} {
			if !strings.Contains(short, want) {
				t.Errorf("no %q in\n%s", want, short)
			}
		}
		// The master's answer and the end of --timeout come at one moment: with the answer it is known that nothing was done.
		answered := strings.Contains(short, "answered: the change was not made") && strings.Contains(short, "[exit 69]")
		if !answered && !strings.Contains(short, "[exit 76]") {
			t.Errorf("the exit code of\n%s", short)
		}
		if strings.Count(short, "chubbyctl: waiting") != 1 {
			t.Errorf("told more than once:\n%s", short)
		}
		leaveWithCopy(t, c, "web9")
		if long := s.run("put /ls/local/config newer -o json --timeout 60s"); !strings.Contains(long, `{"notice":"waiting for `) || !strings.Contains(long, `"size":5`) {
			t.Errorf("as JSON:\n%s", long)
		}
		if at := s.run("cat /ls/local/config"); at != "  newer\n" {
			t.Errorf("the file is %q", at)
		}
	})
}

// leaveWithCopy has a client of that host use its cached copy of the file, and cuts it off.
func leaveWithCopy(t *testing.T, c *celltest.Cell, host string) {
	t.Helper()
	reader := c.Client(host)
	h, err := reader.Open(t.Context(), "/ls/local/config", client.OpenOptions{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first fills the cache, the second asks for the lease to use it
		if _, _, err := h.Contents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.Cut(host)
}

// Without a master the report says how many replicas answer and how many are needed, and again when that changes.
func TestWaitingForAMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 3)
		s := &stage{t: t, cell: c, ctx: t.Context()}
		c.Kill("r1")
		c.Kill("r2")
		time.Sleep(30 * time.Second) // until r3 stops
		told := s.run("ls --timeout 6s")
		for _, want := range []string{"waiting for a master of cell local, of whose 3 replicas 1 answer and 2 are needed", "gave up", "[exit 69]"} {
			if !strings.Contains(told, want) {
				t.Errorf("no %q in\n%s", want, told)
			}
		}
		var text string
		s.beside.Go(func() { text = s.run("ls --timeout 60s") })
		time.Sleep(5 * time.Second)
		c.Restart("r1")
		s.beside.Wait()
		if !strings.Contains(text, "waiting for a master") || !strings.HasSuffix(text, "acl/\n") {
			t.Errorf("with a master again:\n%s", text)
		}
	})
}

// The report says what gives up first.
func TestReportSaysWhatGivesUp(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		c := s.cell
		c.Cut("client")
		for line, want := range map[string]string{
			"acquire /ls/local/a --wait 8s":              "; --wait gives up in ",
			"acquire /ls/local/a --wait 8s --timeout 4s": "; --timeout gives up in ",
			"acquire /ls/local/a":                        "; --timeout gives up in ",
		} {
			if told := s.run(line); strings.Count(told, want) != 1 || strings.Count(told, "gives up in") != 1 {
				t.Errorf("%s: no %q in\n%s", line, want, told)
			}
		}
	})
}

// A short wait is not reported.
func TestNoVigilForWhatIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told buffer
		g := &globals{output: "text", timeout: time.Minute, stderr: term.NewSpeaker(&told), servers: []string{"127.0.0.1:1"}}
		v := g.reportWaitUntil(t.Context(), "local", api.Path{}, "--timeout", g.timeout)
		time.Sleep(reportAfter - time.Millisecond)
		if found := v.stop(); found != "" || told.String() != "" {
			t.Errorf("found %q, told %q", found, told.String())
		}
	})
}
