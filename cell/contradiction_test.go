package cell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
)

// minutes is longer than the time from one check point to the next, and what follows it.
const minutes = 3*time.Minute + 20*time.Second

// rotted runs a test in a cell of that many replicas, with data in dir, that hold "contents" in a file.
func rotted(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c *celltest.Cell, dir string)) {
	t.Helper()
	inBubble(t, time.Hour, func(t *testing.T, ctx context.Context) {
		dir := t.TempDir()
		c := celltest.Start(t, replicas, calm, func(cfg *cell.Config) { cfg.Data = filepath.Join(dir, cfg.ID) })
		write(t, ctx, c, "contents")
		time.Sleep(5 * time.Second) // all have applied it
		test(t, ctx, c, dir)
	})
}

// compares has the replicas compared, as a backup does, and waits until who is contradicted has stopped.
func compares(t *testing.T, ctx context.Context, c *celltest.Cell) {
	t.Helper()
	takeBackup(t, ctx, dial(t, ctx, c, "comparer", client.Config{NoCache: true}))
	time.Sleep(40 * time.Second)
}

// rots changes a replica behind its back.
func rots(t *testing.T, c *celltest.Cell, id, is string) {
	t.Helper()
	synctest.Wait() // Raft's goroutine, which alone changes the state, waits for a message
	noErr(t, c.Replica(id).Rot("/file", is))
}

// stopped returns which of a cell's replicas have stopped by themselves.
func stopped(c *celltest.Cell, replicas int) (ids []string) {
	for i := range replicas {
		id := fmt.Sprintf("r%d", i+1)
		if r := c.Replica(id); r.Err() != nil {
			<-r.Done()
			ids = append(ids, id)
		}
	}
	return ids
}

// follower returns a replica that is not the master.
func follower(c *celltest.Cell) string {
	return others(3, "r1", c.Master())[0]
}

// filesIn returns the contents of all files below a directory.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	noErr(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	}))
	return files
}

// A replica whose memory rots, which the running hash does not show, stops within minutes, and says why. It does not start again
// with its data, of which nothing changes; the others go on and know of it, and a new replica takes its place. The master is no exception: it
// stops being the master, and another one serves what was written. Of five replicas, a backup has them compared at once.
func TestContradictedReplicaStops(t *testing.T) {
	for _, one := range []struct {
		replicas int
		bad      func(c *celltest.Cell) string
		wait     func(t *testing.T, ctx context.Context, c *celltest.Cell)
	}{
		{3, follower, func(*testing.T, context.Context, *celltest.Cell) { time.Sleep(minutes) }},
		{3, (*celltest.Cell).Master, compares},
		{5, follower, compares},
	} {
		rotted(t, one.replicas, func(t *testing.T, ctx context.Context, c *celltest.Cell, dir string) {
			bad := one.bad(c)
			rots(t, c, bad, "/fi1e")
			one.wait(t, ctx, c)
			contradicted(t, ctx, c, one.replicas, dir, bad)
		})
	}
}

func contradicted(t *testing.T, ctx context.Context, c *celltest.Cell, replicas int, dir, bad string) {
	t.Helper()
	if got := stopped(c, replicas); len(got) != 1 || got[0] != bad {
		t.Fatalf("stopped are %v, want %s", got, bad)
	}
	err, data := c.Replica(bad).Err(), filepath.Join(dir, bad)
	for _, want := range []string{"replica " + bad + " stops", "after entry", fmt.Sprintf("%d of the %d voting", replicas-1, replicas), data, "contradicted.json", "cell replace " + bad + " NEW", "cell recover"} {
		stopIf(t, !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), want), "the message does not say %q: %v", want, err)
	}
	before := filesIn(t, data)
	if err := c.TryRestart(ctx, bad); !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "no replica starts with the data") {
		t.Errorf("started again: %v", err)
	}
	after := filesIn(t, data)
	for path, text := range before {
		failIf(t, after[path] != text, "%s has changed", path)
	}
	failIf(t, len(after) != len(before) || len(before) < 4, "there were %d files, and are %d", len(before), len(after))
	if h := c.Replica(c.Master()).Health(); !strings.Contains(h.Warning, bad) {
		t.Errorf("the master's warning is %q", h.Warning)
	}
	equal(t, read(ctx, c), "contents", "the cell serves %q")
	looksAt(t, ctx, data, filepath.Join(dir, c.Master()))
	by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
	replace(t, ctx, c, by, bad, "r9")
	compares(t, ctx, c)
	if c.Replica("r9").Err() != nil || len(c.Replica(c.Master()).Differing()) > 0 {
		t.Errorf("the new replica: %v; the master differs from %v", c.Replica("r9").Err(), c.Replica(c.Master()).Differing())
	}
}

// looksAt looks at the directory of a replica that was contradicted: alone, and it is not taken for one from which a cell is recovered.
func looksAt(t *testing.T, ctx context.Context, data, other string) {
	t.Helper()
	list, err := recovery.Look(ctx, []string{data})
	stopIf(t, err != nil || !strings.Contains(list[0].Contradicted, "stops"), "%+v, %v", list, err)
	state := must(list[0].State(ctx, nil))(t)
	if file, ok := state.Tree.Get("/file"); !ok || !bytes.EqualFold(file.Contents, []byte("contents")) {
		t.Errorf("the directory has %+v", file)
	}
	if _, err := recovery.Look(ctx, []string{data, other}); api.CodeOf(err) != api.InvalidArgument {
		t.Errorf("a directory that was contradicted, together with another: %v", err)
	}
}

// Two of four differ from the other two: there is no majority, and nobody stops. All know of it.
func TestNoMajorityStopsNobody(t *testing.T) {
	rotted(t, 4, func(t *testing.T, ctx context.Context, c *celltest.Cell, _ string) {
		rots(t, c, "r1", "/fi1e")
		rots(t, c, "r2", "/fi1e")
		compares(t, ctx, c)
		if got := stopped(c, 4); len(got) > 0 {
			t.Fatalf("stopped are %v", got)
		}
		for _, id := range []string{"r1", "r2", "r3", "r4"} {
			if n := len(c.Replica(id).Differing()); n != 2 {
				t.Errorf("%s differs from %d replicas", id, n)
			}
		}
	})
}

// However many rot, each in its own way, a majority runs on.
func TestMajorityRunsOn(t *testing.T) {
	rotted(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell, _ string) {
		for i, id := range []string{"r1", "r2", "r3"} {
			rots(t, c, id, fmt.Sprintf("/fi%de", i))
			compares(t, ctx, c)
			if got, most := len(stopped(c, 5)), min(i+1, 2); got != most {
				t.Errorf("%d replicas have rotted, and %d have stopped", i+1, got)
			}
		}
	})
}

// One replica of five says that it has another state than it has: nobody else stops.
func TestLiarStopsNobody(t *testing.T) {
	rotted(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell, _ string) {
		c.Replica("r1").Lie()
		c.Sever("r1") // on new connections it lies
		compares(t, ctx, c)
		if got := stopped(c, 5); len(got) > 0 {
			t.Errorf("stopped are %v", got)
		}
		if got := c.Replica("r2").Differing(); len(got) != 1 || got[0] != "r1" {
			t.Errorf("r2 differs from %v", got)
		}
	})
}

// While replicas of two versions run, none is contradicted by those of the other.
func TestOtherVersionsStopNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := raftfsm.MaxLevel - 1
		c := celltest.Start(t, 3, calm, func(cfg *cell.Config) { cfg.Support(level) })
		write(t, t.Context(), c, "contents")
		level++
		newer := follower(c)
		c.Kill(newer)
		c.Restart(newer)
		time.Sleep(5 * time.Second)
		rots(t, c, newer, "/fi1e")
		compares(t, t.Context(), c)
		if got := stopped(c, 3); len(got) > 0 {
			t.Errorf("stopped are %v", got)
		}
	})
}
