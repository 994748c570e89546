package cell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// onDisks starts a cell of three with data directories in dir. Its members all
// keep Bootstrap set, as configuration files do.
func onDisks(t *testing.T, dir string) *celltest.Cell {
	t.Helper()
	return celltest.Start(t, 3, func(cfg *cell.Config) {
		cfg.Data, cfg.Bootstrap = filepath.Join(dir, cfg.ID), true
	})
}

// wipe empties a replica's disk.
func wipe(t *testing.T, dir, id string) {
	t.Helper()
	noErr(t, os.RemoveAll(filepath.Join(dir, id)))
}

// write writes a file in a session that is closed again.
func write(t *testing.T, ctx context.Context, c *celltest.Cell, text string) {
	t.Helper()
	cl := must(client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("writer"), Clock: celltest.Clock}))(t)
	must(open(t, ctx, cl, "/ls/local/file", 0).SetContents(ctx, []byte(text)))(t)
	noErr(t, cl.Close(ctx))
}

// read returns the file's contents as the cell serves them, or the error.
func read(ctx context.Context, c *celltest.Cell) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("reader"), Clock: celltest.Clock})
	if err != nil {
		return "no master"
	}
	defer func() { _ = cl.Close(ctx) }() // it only reads
	h, err := cl.Open(ctx, "/ls/local/file", client.OpenOptions{Read: true})
	if err != nil {
		return api.CodeOf(err).String()
	}
	text, _, err := h.Contents(ctx)
	if err != nil {
		return api.CodeOf(err).String()
	}
	return string(text)
}

// attempt is an attempt to start a replica again.
type attempt struct {
	err  error
	done chan struct{}
}

// startAll starts replicas one after the other, with time between them. It
// returns when each runs, is refused, or has waited for a minute.
func startAll(ctx context.Context, c *celltest.Cell, order []string) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	all := map[string]*attempt{}
	for _, id := range order {
		a := &attempt{done: make(chan struct{})}
		all[id] = a
		go func() {
			defer close(a.done)
			a.err = c.TryRestart(ctx, id)
		}()
		time.Sleep(3 * time.Second)
	}
	errs := map[string]error{}
	for id, a := range all {
		<-a.done
		errs[id] = a.err
	}
	return errs
}

// TestDisksLost: any of three replicas lose their disks, and all are started again in any order. Then the cell serves
// what it had acknowledged, or does not serve. No second cell begins while a disk of the first is left. For each loss two
// of the six orders are tried, with -full all of them.
func TestDisksLost(t *testing.T) {
	orders := [][]string{{"r1", "r2", "r3"}, {"r1", "r3", "r2"}, {"r2", "r1", "r3"}, {"r2", "r3", "r1"}, {"r3", "r1", "r2"}, {"r3", "r2", "r1"}}
	for i, lost := range []string{"", "r1", "r2", "r3", "r1 r2", "r1 r3", "r2 r3", "r1 r2 r3"} {
		tried := [][]string{orders[i%6], orders[(i+3)%6]}
		if *full {
			tried = orders
		}
		for _, order := range tried {
			t.Run(fmt.Sprintf("lost %s, started %s", lost, strings.Join(order, " ")), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { losesDisks(t, strings.Fields(lost), order) })
			})
		}
	}
}

func losesDisks(t *testing.T, lost, order []string) {
	ctx, dir := t.Context(), t.TempDir()
	c := onDisks(t, dir)
	write(t, ctx, c, "acknowledged")
	for _, id := range order {
		c.Kill(id)
	}
	for _, id := range lost {
		wipe(t, dir, id)
	}
	want := "acknowledged"
	switch len(lost) {
	case 2:
		want = "no master"
	case 3:
		want = "NotFound" // no disk is left that could distinguish this from a first start
	}
	errs := startAll(ctx, c, order)
	for id, err := range errs {
		refused := errors.Is(err, cell.ErrRefused)
		if wiped := slices.Contains(lost, id) && len(lost) < 3; wiped != refused || !refused && err != nil {
			t.Errorf("%s, its disk lost: %v: %v", id, slices.Contains(lost, id), err)
		}
	}
	equal(t, read(ctx, c), want, "the cell serves %q")
}

// TestAmnesiacDoesNotVote: two of three replicas acknowledge a write; one of the two loses its disk, and the other one
// is down. The third, which was cut off, must not become master with the vote of the empty one.
func TestAmnesiacDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, dir := t.Context(), t.TempDir()
		c := onDisks(t, dir)
		write(t, ctx, c, "old")
		c.Kill("r3")
		write(t, ctx, c, "acknowledged")
		c.Kill("r1")
		c.Kill("r2")
		wipe(t, dir, "r2")
		errs := startAll(ctx, c, []string{"r2", "r3"})
		if !errors.Is(errs["r2"], cell.ErrRefused) || !strings.Contains(errs["r2"].Error(), "replica r2 lost its data: replica r3 knows") {
			t.Errorf("the replica that lost its disk: %v", errs["r2"])
		}
		equal(t, read(ctx, c), "no master", "the cell serves %q")
		c.Restart("r1")
		equal(t, read(ctx, c), "acknowledged", "with both intact replicas the cell serves %q")
	})
}

// TestEmptyDirectoryIsRefused: without Bootstrap, an empty data directory is a
// mistake, and the replica does not write to it.
func TestEmptyDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "mounted")
	cfg := cell.Config{Cell: "c", ID: "r1", Data: dir, Members: []cell.Member{{ID: "r1", Client: "127.0.0.1:0", Raft: "127.0.0.1:1"}}}
	_, err := cell.Start(t.Context(), cfg)
	if !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "--bootstrap") || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v; want a refusal that says what to do", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

// TestBootstrapWaitsForAll: a cell begins when every member was reached. A
// replica that is stopped before says for which members it was waiting.
func TestBootstrapWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, dir := t.Context(), t.TempDir()
		c := onDisks(t, dir)
		for _, id := range []string{"r1", "r2", "r3"} {
			c.Kill(id)
			wipe(t, dir, id)
		}
		errs := startAll(ctx, c, []string{"r1", "r3"})
		for _, id := range []string{"r1", "r3"} {
			if errs[id] == nil || errors.Is(errs[id], cell.ErrRefused) || !strings.Contains(errs[id].Error(), "r2 (") {
				t.Errorf("%s: %v; want it to wait for r2", id, errs[id])
			}
		}
		equal(t, read(ctx, c), "no master", "two of three serve %q")
		for id, err := range startAll(ctx, c, []string{"r3", "r2", "r1"}) {
			failIf(t, err != nil, "%s, with all of them there: %v", id, err)
		}
		equal(t, read(ctx, c), "NotFound", "the new cell serves %q")
	})
}

// TestTheCellKnowsItsMembers: a replica with other members in its configuration than its cell has goes by
// those of the cell. Its own address it cannot change.
func TestTheCellKnowsItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var change func(*cell.Config)
		c := celltest.Start(t, 3, func(cfg *cell.Config) {
			if change != nil {
				cfg.Members = slices.Clone(cfg.Members)
				change(cfg)
			}
		})
		for name, one := range map[string]struct {
			change func(*cell.Config)
			want   string
		}{
			"another address": {change: func(cfg *cell.Config) { cfg.Members[2].Raft = "r4:7431" }},
			"another id":      {change: func(cfg *cell.Config) { cfg.Members[2].ID = "r4" }},
			"one fewer":       {change: func(cfg *cell.Config) { cfg.Members = cfg.Members[:2] }},
			"one more": {change: func(cfg *cell.Config) {
				cfg.Members = append(cfg.Members, cell.Member{ID: "r4", Client: "r4:7421", Raft: "r4:7431"})
			}},
			"another address of its own": {func(cfg *cell.Config) { cfg.Members[1].Raft = "r4:7431" }, "knows it at r2:7431"},
		} {
			c.Kill("r2")
			change = one.change
			err := c.TryRestart(t.Context(), "r2")
			if (err == nil) != (one.want == "") || err != nil && (!errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), one.want)) {
				t.Errorf("%s: %v; want %q", name, err, one.want)
			}
			change = nil
			if err != nil {
				c.Restart("r2")
			}
			c.FailOver()
			write(t, t.Context(), c, name) // with r2: another is dead
			for _, id := range []string{"r1", "r2", "r3"} {
				if c.Replica(id) == nil {
					c.Restart(id)
				}
			}
		}
	})
}

// TestLogOfAnotherCellIsRefused: a replica that leads, and finds that its log belongs to another
// cell than its directory, stops permanently: starting it again does not help.
func TestLogOfAnotherCellIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Data, cfg.Bootstrap = filepath.Join(dir, cfg.ID), true })
		write(t, t.Context(), c, "old")
		c.Kill("r1")
		name := filepath.Join(dir, "r1", "cell.json")
		text, err := os.ReadFile(name)
		noErr(t, err)
		var roster map[string]any
		noErr(t, json.Unmarshal(text, &roster))
		roster["cell_id"] = strings.Repeat("0", 32)
		delete(roster, "sum") // as if the file had been written so
		if text, err = json.Marshal(roster); err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		noErr(t, err)
		c.Restart("r1")
		r1 := c.Replica("r1")
		select {
		case <-r1.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("it goes on")
		}
		if err := r1.Err(); !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "are not of one replica") {
			t.Errorf("it stopped with %v", err)
		}
	})
}

// TestOldCopyIsRefused: a data directory is replaced by an older copy of itself. The other replicas take its owner for
// the same replica, but it has less than it acknowledged. It is refused, and stops, as soon as it reaches a replica
// that remembers.
func TestOldCopyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, dir := t.Context(), t.TempDir()
		c := onDisks(t, dir)
		write(t, ctx, c, "old")
		c.Kill("r2")
		old := filepath.Join(t.TempDir(), "copy")
		noErr(t, os.CopyFS(old, os.DirFS(filepath.Join(dir, "r2"))))
		c.Restart("r2")
		time.Sleep(10 * time.Second)
		c.Kill("r3")
		write(t, ctx, c, "acknowledged")
		time.Sleep(10 * time.Second)
		c.Kill("r2")
		wipe(t, dir, "r2")
		noErr(t, os.CopyFS(filepath.Join(dir, "r2"), os.DirFS(old)))
		c.Restart("r2")
		r2 := c.Replica("r2")
		select {
		case <-r2.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the old copy goes on")
		}
		if err := r2.Err(); !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), "replica r2 lost entries: replica r1 knows") {
			t.Errorf("it stopped with %v", err)
		}
		c.Restart("r3")
		equal(t, read(ctx, c), "acknowledged", "the others serve %q")
	})
}

// changedBack has a change of the replicas taken back at another master while the first one still asks what it has to know for the change; and the first
// one leads again when it has its answers, as soon as the second one has noted that all is as it was.
func changedBack(t *testing.T, ctx context.Context, c *celltest.Cell, by *client.Client, first, second string, back client.MemberChange) {
	t.Helper()
	time.Sleep(250 * time.Millisecond) // it has begun to ask
	noErr(t, c.Replica(first).Transfer(ctx, second))
	noErr(t, client.ChangeMembers(ctx, by, back, nil))
	for settled := false; !settled && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		_, settled = cell.Voters(c.Replica(second))
	}
	noErr(t, c.Replica(second).Transfer(ctx, first))
	time.Sleep(10 * time.Second)
}

// What stays is a member for Raft as well: three of five replicas are a majority.
func TestWhatIsKeptHasItsVote(t *testing.T) {
	inCellOf(t, 5, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		by := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		first := c.Master()
		rest := others(5, first)
		leaving, dead, second, last := rest[0], rest[1], rest[2], rest[3]
		c.Kill(dead) // so that the question takes its time
		noErr(t, client.ChangeMembers(ctx, by, client.MemberChange{Remove: leaving}, nil))
		changedBack(t, ctx, c, by, first, second, client.MemberChange{Keep: leaving})
		if ids, settled := cell.Voters(c.Replica(c.Master())); !settled || len(ids) != 5 {
			t.Errorf("of five members a vote have %v; no change is under way: %v", ids, settled)
		}
		c.Kill(last)
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		report(t, errOf(by.Put(within, "/ls/local/after", nil)), "three of five members run")
	})
}
