//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/recipes"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/internal/tenure"
)

// TestMain makes this program the guardian of the tests' commands, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardianVerb {
		main()
		return
	}
	os.Exit(m.Run())
}

// stage runs command lines in a cell of its own.
type stage struct {
	*testing.T
	cell *celltest.Cell
	verb string
}

func newStage(t *testing.T, verb string) *stage {
	t.Helper()
	cell, err := celltest.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cell.Close)
	t.Setenv("CHUBBY_CELL", "local")
	return &stage{t, cell, verb}
}

// run runs a command line of the verb, of which want is the exit code, and returns what it wrote. Words with spaces are in quotes.
func (s *stage) run(want int, line string) (out, said string) {
	s.Helper()
	args := []string{s.verb}
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	var stdout, stderr bytes.Buffer
	g := newGlobals(&stdout, &stderr)
	g.adapt = func(cfg *client.Config) {
		cfg.Servers, cfg.Dialer, cfg.Clock = s.cell.Servers(), s.cell.Dial, celltest.Clock
	}
	if got := g.run(s.Context(), args); got != want {
		s.Errorf("%s: exit code %d, want %d; it wrote %s and said %s", line, got, want, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

// says runs a command line that writes something, and says something, of that form.
func (s *stage) says(want int, line, out, said string) string {
	s.Helper()
	gotOut, gotSaid := s.run(want, line)
	if !regexp.MustCompile(out).MatchString(gotOut) || !regexp.MustCompile(said).MatchString(gotSaid) {
		s.Errorf("%s: it wrote %q, and said %q; want %q and %q", line, gotOut, gotSaid, out, said)
	}
	return strings.TrimSpace(gotOut)
}

func TestItems(t *testing.T) {
	s := newStage(t, "queue")
	s.says(0, "list /ls/local/films", "^$", "no such queue")
	id := s.says(0, "put films film17", `^p0\.\w+\n$`, "^$")
	s.says(0, "-o json put /ls/local/films film18 --priority 5", `^{"path":"/ls/local/films","id":"p5\.\w+","priority":5,"delay_s":0}\n$`, "^$")
	s.says(0, "put films film19 --priority -2 --delay 90s", `^p-2\.`, "^$")
	s.says(0, "ls films", `(?s)^ID +PRIORITY +BYTES +TRIES +STATE +NOTE\np5\.\w+ +5 +6 +0 +free +-\n.*delayed +for another 1m(30|2\d)s\n$`, "^$")
	s.says(0, "list films -o json", `"path":"/ls/local/films/task-`+id+`","priority":0,"bytes":6,"attempts":0,"state":"free","modified_s":\d+}`, "^$")
	s.says(0, "list films -o yaml", "^---\n", "^$")
	s.says(0, "list films --dead", "^$", "has no dead letters")
	s.says(1, "retry films "+id, "^$", "is no dead letter: it is in the queue")
	s.says(1, "discard films p0.X p0.Y", "^$", `(?s)"p0.X".*\n.*"p0.Y"`)
	s.says(1, "put /ls/local/no/where x", "^$", "mkdir -p /ls/local/no does")
	for line, said := range map[string]string{
		"put films x --priority 10": "want -9 to 9", "put films x --delay 1000h": "want 0 to", "put /ls/local x": "root directory", "put": "want",
		"take films": "the command is missing", "take films x -- y": "want one path", "take -- y": "want one path", "list films --nosuch": "--nosuch",
		"add x": "'chubbyctl queue put PATH DATA'", "": "needs one of", "take films --attempts 5000 -- true": "--attempts", "-o xml list films": "want text",
		"take films --lease 1s --lock-delay 0 -- true": "nobody else can have the lock", "take films --lease 1h -- true": "want 0 or more",
		"take films --sequencer-file /dev/null -- true": "no ordinary file", "take films --jeopardy-signal X -- true": "not a signal",
	} {
		s.says(exitUsage, line, "", said)
	}
	s.says(exitUsage, "-o json", "^$", `"exit":2}}\n$`)
	s.says(supervise.ExitNotFound, "take films -- no-such-program", "^$", "no-such-program")
}

func TestTake(t *testing.T) {
	s := newStage(t, "queue")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	told, file := filepath.Join(t.TempDir(), "told"), filepath.Join(t.TempDir(), "sequencer")
	id := s.says(0, "put films film17", "", "")
	s.says(7, "take films --attempts 2 --sequencer-file "+file+" -- sh -c 'cat >"+told+`; echo " $CHUBBY_ITEM $CHUBBY_ATTEMPT $CHUBBY_LOCK $CHUBBY_SEQUENCER" >>`+
		told+"; cat "+file+" >>"+told+"; exit 7'", "^$", "^$")
	text, err := os.ReadFile(told)
	if want := "film17 " + id + " 1 /ls/local/films/task-" + id + " "; err != nil || !strings.HasPrefix(string(text), want) ||
		len(strings.Fields(strings.TrimPrefix(string(text), want))) != 2 {
		t.Errorf("CMD was told %q (%v), want %q", text, err, want)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file of the sequencer is there")
	}
	s.says(137, "take films --attempts 2 -- sh -c 'kill -9 $$'", "^$", "is a dead letter")
	s.says(exitWaited, "take films --wait 0s -- true", "^$", "no item is free")
	s.says(0, "list films", "^$", "no items, and 1 dead letter")
	s.says(0, "-o json list films --dead", `"attempts":2,"state":"dead","reason":"exit code 137`, "^$")
	s.says(0, "-v retry films "+id, "^$", "is in the queue again")
	s.says(0, "take films --attempts 2 --quiet -- sh -c 'test \"$(cat) $CHUBBY_ATTEMPT\" = \"film17 1\"'", "^$", "^$")
	s.says(0, "list films", "^$", "has no items\n$")
}

func TestBarrier(t *testing.T) {
	s := newStage(t, "barrier")
	for line, said := range map[string]string{
		"rollout": "--parties is missing", "rollout --parties 201": "--parties", "rollout --parties 2 --wait 0": "--wait",
		"/ls/local --parties 2": "root directory", "a b --parties 2": "want 'chubbyctl barrier PATH",
	} {
		s.says(exitUsage, line, "", said)
	}
	s.says(exitWaited, "rollout --parties 2 --wait 1s", "^$", "fewer than 2 have come")
	first := make(chan struct{})
	go func() {
		defer close(first)
		s.says(0, "rollout --parties 2 -v", "^$", "2 have come, in round 1")
	}()
	s.says(0, "rollout --parties 2 -o json", `^{"path":"/ls/local/rollout","parties":2,"round":1}\n$`, "")
	<-first
	s.says(exitUsage, "rollout --parties 3", "^$", "the directory says 2")
	s.says(exitFailed, "/ls/local/no/where --parties 1", "^$", "mkdir -p")
}

// Who gives up at a barrier while the cell does not answer is not told that fewer have come: he may have been counted.
func TestBarrierWithoutAnAnswer(t *testing.T) {
	for what, want := range map[string]int{"--wait": exitWaited, "a signal": 130} {
		synctest.Test(t, func(t *testing.T) {
			cell := celltest.Start(t, 1)
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			args := []string{"barrier", "/ls/local/rollout", "--parties", "2"}
			if want == exitWaited {
				args = append(args, "--wait", "5s")
			} else {
				time.AfterFunc(5*time.Second, func() { interrupt(interrupted{os.Interrupt}) })
			}
			time.AfterFunc(3*time.Second, func() { cell.Cut("web1") })
			var told bytes.Buffer
			g := newGlobals(&told, &told)
			g.adapt = func(cfg *client.Config) {
				cfg.Servers, cfg.Dialer, cfg.Clock = cell.Servers(), cell.DialFrom("web1"), cell.ClockOf("web1")
			}
			got := g.run(ctx, args)
			if said := told.String(); got != want || !strings.Contains(said, "may have been counted") || strings.Contains(said, "; fewer than") {
				t.Errorf("%s: exit code %d, want %d: %s", what, got, want, said)
			}
		})
	}
}

// Where CMD has ended with 0, and the item is lost in the moment after, take does not say that the item is done. An item is back in its
// place, and its try does not count, if CMD could not be begun; if CMD has begun, the try counts.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cell := celltest.Start(t, 1)
		c, err := client.New(t.Context(), client.Config{Servers: cell.Servers(), Dialer: cell.Dial, Clock: celltest.Clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		path := api.MustParsePath("/ls/local/films")
		q := recipes.NewQueue(c, path.String(), recipes.QueueOptions{})
		if _, err := q.Put(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		o := &takeOptions{globals: newGlobals(&told, &told), path: path, attempts: 8, begun: stopwatch()}
		o.timeout = 15 * time.Second
		counted := 0
		for _, one := range []struct {
			err    error // of CMD
			code   int
			counts bool
		}{
			{tenure.NotBegun{Err: &supervise.NotRunError{Name: "x", Code: supervise.ExitNotFound}}, 127, false},
			{&tenure.Ended{Code: 1}, 1, true},
			{tenure.NotBegun{Err: &tenure.Ended{Lost: true, Err: api.Errorf(api.LockLost, "late")}}, exitLost, false},
			{&tenure.Ended{Code: 143, Err: errors.New("the guardian is gone")}, exitFailed, true},
			{&tenure.Ended{Code: 127}, 127, true},
		} {
			item, err := o.take(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.finish(item, one.err); exitCode(got) != one.code {
				t.Errorf("after %v it ends with %d: %v", one.err, exitCode(got), got)
			}
			o.giveBack(c, item)
			if one.counts {
				counted++
			}
			list, err := q.List(t.Context())
			if err != nil || len(list) != 1 || list[0].Attempts != counted || len(list[0].Holders) != 0 {
				t.Errorf("after %v: %+v (%v), want %d tries", one.err, list, err, counted)
			}
		}
		item, err := o.take(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.BreakLock(t.Context(), item.Path(), "a test", false); err != nil {
			t.Fatal(err)
		}
		<-item.Context().Done()
		if err := o.finish(item, nil); exitCode(err) != exitLost {
			t.Errorf("exit code %d: %v", exitCode(err), err)
		}
		if n, err := q.Len(t.Context()); n != 1 || err != nil || told.String() != "" {
			t.Errorf("%d items, %v; told %q", n, err, &told)
		}
	})
}
