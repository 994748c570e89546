package recovery_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/client"
)

// lostCell is a cell whose replicas have all stopped.
type lostCell struct {
	dirs  map[string]string // by the ID of the replica
	first string            // the ID of the one that stopped first
	token uint64            // of a lock that was held to the end
}

// loseCell runs a cell of five, of which one stops early: the master, so that the others go on in another term, or not.
func loseCell(t *testing.T, ctx context.Context, master bool) (lost lostCell) {
	lost.dirs = map[string]string{}
	c := celltest.Start(t, 5, func(cfg *cell.Config) { lost.dirs[cfg.ID] = cfg.Data })
	cl, err := client.New(ctx, client.Config{Cell: "local", Servers: c.Servers(), Dialer: c.DialFrom("client")})
	if err != nil {
		t.Fatal(err)
	}
	h, err := cl.Open(ctx, "/ls/local/file", client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := h.SetContents(ctx, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("early")
	for id := range lost.dirs {
		if (id == c.Master()) == master {
			lost.first = id
		}
	}
	c.Kill(lost.first)
	write("late")
	lock, err := h.Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	lost.token = lock.Token()
	write("acknowledged")
	if _, err := recovery.Look(ctx, []string{lost.dirs[c.Master()]}); err == nil {
		t.Error("the directory of a replica that runs was opened")
	}
	for id := range lost.dirs {
		if id != lost.first {
			c.Kill(id)
		}
	}
	_ = cl.Close(ctx) // there is nobody to tell
	return lost
}

// The freshest of the directories that are left has what was acknowledged, and its state can be had again and again.
func TestRecovery(t *testing.T) {
	for _, master := range []bool{false, true} {
		recovers(t, master)
	}
}

func recovers(t *testing.T, master bool) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lost := loseCell(t, ctx, master)
		for range 2 {
			list, err := recovery.Look(ctx, slices.Collect(maps.Values(lost.dirs)))
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range list {
				if d.Cell != "local" || len(d.CellID) != 32 || len(d.Replicas) != 5 || lost.dirs[d.Replica] != d.Path || i > 0 && (d.Term > list[i-1].Term || d.Term == list[i-1].Term && d.Index > list[i-1].Index) {
					t.Errorf("place %d: %+v", i, d)
				}
			}
			if last := list[4]; last.Replica != lost.first || last.Index >= list[0].Index {
				t.Errorf("the one that stopped first is not the last: %+v", list)
			}
			var seen uint64
			state, err := list[0].State(ctx, func(index uint64) { seen = index })
			if err != nil {
				t.Fatal(err)
			}
			file, _ := state.Tree.Get("/file")
			if string(file.Contents) != "acknowledged" || len(file.Holders) != 1 || uint64(file.Lock) != lost.token || state.Counter < lost.token {
				t.Errorf("recovered is %+v, with counter %d", file, state.Counter)
			}
			if err := state.Check(); err != nil || seen != list[0].Index || state.Applied != seen {
				t.Errorf("%v; read up to %d of %d, and it is of %d", err, seen, list[0].Index, state.Applied)
			}
			old, err := list[4].State(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if file, _ := old.Tree.Get("/file"); file != nil && string(file.Contents) != "early" && len(file.Contents) > 0 {
				t.Errorf("the one that stopped first has %q", file.Contents) // it need not have had the first
			}
		}
		stopped, stop := context.WithCancel(ctx)
		stop()
		if _, err := recovery.Look(stopped, []string{lost.dirs["r1"]}); !errors.Is(err, context.Canceled) {
			t.Error("interrupted:", err)
		}
		list, err := recovery.Look(ctx, []string{lost.dirs["r1"]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := list[0].State(stopped, nil); !errors.Is(err, context.Canceled) {
			t.Error("interrupted:", err)
		}
	})
}

// What is no directory of a replica, or is of another cell, or is there twice, is refused by its name.
func TestWhatCannotBeRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lost, other := loseCell(t, ctx, true), loseCell(t, ctx, false)
		empty := t.TempDir()
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(lost.dirs["r1"])); err != nil {
			t.Fatal(err)
		}
		for want, paths := range map[string][]string{
			"no data directory of a replica":     {lost.dirs["r1"], empty},
			"no such file":                       {empty + "/none"},
			"different replicas of one cell":     {lost.dirs["r1"], other.dirs["r2"]},
			"name directories of different repl": {lost.dirs["r1"], copied},
		} {
			if _, err := recovery.Look(ctx, paths); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), paths[len(paths)-1]) {
				t.Errorf("%q: %v", paths, err)
			}
		}
		if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
			t.Errorf("in a directory that held nothing: %v, %v", left, err)
		}
	})
}

// A replica that was removed knows it if it ran then; if it did not, the others know. What it has is old, and says so.
func TestRemovedReplicaIsNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		dirs := map[string]string{}
		c := celltest.Start(t, 5, func(cfg *cell.Config) { dirs[cfg.ID] = cfg.Data })
		cl, err := client.New(ctx, client.Config{Cell: "local", Servers: c.Servers(), Dialer: c.DialFrom("client")})
		if err != nil {
			t.Fatal(err)
		}
		var ran, down string // when they are removed
		for _, id := range slices.Sorted(maps.Keys(dirs)) {
			if id != c.Master() {
				ran, down = down, id
			}
		}
		c.Kill(down)
		for _, id := range []string{ran, down} {
			if err := client.ChangeMembers(ctx, cl, client.MemberChange{Remove: id}, func([]client.Member) {}); err != nil {
				t.Fatal(err)
			}
		}
		<-c.Replica(ran).Done()
		_ = cl.Close(ctx)
		for id := range dirs {
			if id != ran && id != down {
				c.Kill(id)
			}
		}
		var member string
		for id := range dirs {
			if id != ran && id != down {
				member = id
			}
		}
		removed := func(paths ...string) (ids []string) {
			list, err := recovery.Look(ctx, paths)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				if d.Removed {
					ids = append(ids, d.Replica)
				}
			}
			slices.Sort(ids)
			return ids
		}
		both := []string{ran, down}
		slices.Sort(both)
		if got := removed(dirs[ran]); !slices.Equal(got, []string{ran}) {
			t.Errorf("of %s alone, these were removed: %v", ran, got)
		}
		if got := removed(dirs[member]); len(got) > 0 {
			t.Errorf("of %s alone, these were removed: %v", member, got)
		}
		if got := removed(dirs[ran], dirs[down], dirs[member]); !slices.Equal(got, both) {
			t.Errorf("these were removed: %v, want %v", got, both)
		}
	})
}
