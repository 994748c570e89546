package cell_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
)

// upgradedCell is a cell whose replicas have binaries of different versions.
type upgradedCell struct {
	*celltest.Cell
	t     *testing.T
	knows map[string]int
}

// startUpgradedCell starts a cell of three replicas that know this version's level.
func startUpgradedCell(t *testing.T, options ...func(*cell.Config)) *upgradedCell {
	u := &upgradedCell{t: t, knows: map[string]int{}}
	u.Cell = celltest.Start(t, 3, func(cfg *cell.Config) {
		for _, option := range options {
			option(cfg)
		}
		if level, ok := u.knows[cfg.ID]; ok {
			cfg.Support(level)
		}
	})
	return u
}

// replace restarts a replica, with a binary that knows that level.
func (u *upgradedCell) replace(id string, level int) {
	u.Kill(id)
	u.knows[id] = level
	u.Restart(id)
	u.Master()
}

// status returns the level of the cell, and the highest level that each replica knows.
func (u *upgradedCell) status(ctx context.Context) (level int, knows map[string]int) {
	u.t.Helper()
	k := must(client.Dial(ctx, client.Config{Servers: u.Servers(), Dialer: u.Dial, Clock: celltest.Clock}))(u.t)
	defer func() { _ = k.Close() }()
	s := must(k.Status(ctx))(u.t)
	knows = map[string]int{}
	for _, r := range s.Replicas {
		knows[r.ID] = r.MaxLevel
	}
	return s.Level, knows
}

// finish finishes the upgrade, which must have that result. The error must contain says; without
// says there must be none.
func (u *upgradedCell) finish(ctx context.Context, k *client.Client, want client.Upgrade, says ...string) {
	u.t.Helper()
	got, err := k.FinishUpgrade(ctx)
	if got.Level != want.Level || got.Newest != want.Newest || len(got.Members) != 3 {
		u.t.Errorf("it is %+v, want %+v", got, want)
	}
	if (err != nil) != (len(says) > 0) || err != nil && !errors.Is(err, api.Unavailable) {
		u.t.Fatalf("it ended with %v, want %q", err, says)
	}
	for _, words := range says {
		failIf(u.t, !strings.Contains(err.Error(), words), "it does not say %q: %v", words, err)
	}
}

// A cell with a replica that is lost for good finishes its upgrade without that one, if an operator says so; and not without one that answers.
func TestUpgradeWithoutTheLost(t *testing.T) {
	const old, next = raftfsm.MaxLevel, raftfsm.MaxLevel + 1
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		u := startUpgradedCell(t)
		k := dial(t, ctx, u.Cell, "operator", client.Config{})
		u.replace("r1", next)
		u.replace("r2", next)
		if got, err := k.FinishUpgrade(ctx, "r3"); got.Level != old || !errors.Is(err, api.Unavailable) {
			t.Errorf("r3 runs and is old: %+v, %v", got, err)
		}
		u.Kill("r3")
		if got, err := k.FinishUpgrade(ctx, "r2"); got.Level != old || !errors.Is(err, api.Unavailable) {
			t.Errorf("another than r3 is left out: %+v, %v", got, err)
		}
		if got, err := k.FinishUpgrade(ctx, "r3"); got.Level != next || err != nil {
			t.Errorf("r3 is left out: %+v, %v", got, err)
		}
	})
}

// A cell is upgraded replica by replica, with any of them as its master. It goes on to the new level when an operator
// finishes the upgrade and every replica knows the level. An older replica cannot follow it then, and says why.
func TestUpgrade(t *testing.T) {
	const old, next = raftfsm.MaxLevel, raftfsm.MaxLevel + 1
	knowsOld := func(id string) string { return fmt.Sprintf("%s knows feature levels up to %d", id, old) }
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		u := startUpgradedCell(t)
		k := dial(t, ctx, u.Cell, "operator", client.Config{})
		u.finish(ctx, k, client.Upgrade{Level: old, Newest: old}) // nothing to do
		u.replace("r1", next)
		u.finish(ctx, k, client.Upgrade{Level: old, Newest: next}, knowsOld("r2"), "r3 knows")
		u.replace("r2", next)
		for _, stopped := range []bool{false, true} {
			says := knowsOld("r3")
			if stopped {
				u.Kill("r3")
				says = "r3 does not answer"
			}
			u.Master()
			u.finish(ctx, k, client.Upgrade{Level: old, Newest: next}, says)
		}
		u.knows["r3"] = next
		u.Restart("r3")
		u.replace("r2", old) // until the upgrade is finished, an operator can go back
		u.finish(ctx, k, client.Upgrade{Level: old, Newest: next}, knowsOld("r2"))
		u.replace("r2", next)
		if level, knows := u.status(ctx); level != old || !maps.Equal(knows, map[string]int{"r1": next, "r2": next, "r3": next}) {
			t.Errorf("before: level %d, and %v", level, knows)
		}
		u.finish(ctx, k, client.Upgrade{Level: next, Newest: next})
		u.finish(ctx, k, client.Upgrade{Level: next, Newest: next})
		if level, _ := u.status(ctx); level != next {
			t.Errorf("after: level %d", level)
		}

		u.Kill("r3")
		u.knows["r3"] = old
		err := u.TryRestart(ctx, "r3")
		if err == nil {
			select {
			case <-u.Replica("r3").Done():
				err = u.Replica("r3").Err()
			case <-time.After(time.Minute):
			}
		}
		if !errors.Is(err, cell.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("it is of feature level %d, and this replica knows levels up to %d", next, old)) {
			t.Errorf("an older replica ended with %v", err)
		}
	})
}

// What a replica that does not answer knows is not known: while it is away, nobody is told that
// the cell has the newest level, be it that replica alone that has the new version.
func TestFinishNeedsEveryAnswer(t *testing.T) {
	const old, next = raftfsm.MaxLevel, raftfsm.MaxLevel + 1
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		u := startUpgradedCell(t)
		k := dial(t, ctx, u.Cell, "operator", client.Config{})
		u.replace("r3", next)
		u.Kill("r3")
		u.Master()
		u.finish(ctx, k, client.Upgrade{Level: old, Newest: old}, "r3 does not answer")
		u.Restart("r3")
		u.finish(ctx, k, client.Upgrade{Level: old, Newest: next}, "r1 knows", "r2 knows")
	})
}

// Two operators finish an upgrade at the same time, and both are told that it is finished.
func TestUpgradeIsFinishedTwiceAtOnce(t *testing.T) {
	const next = raftfsm.MaxLevel + 1
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		u := startUpgradedCell(t, func(cfg *cell.Config) { cell.DelayEntries(cfg, time.Second) }) // both ask before the first is done
		for _, id := range []string{"r1", "r2", "r3"} {
			u.replace(id, next)
		}
		var clients []*client.Client
		for range 2 {
			clients = append(clients, dial(t, ctx, u.Cell, "operator", client.Config{}))
		}
		var operators sync.WaitGroup
		for _, k := range clients {
			operators.Go(func() {
				if got, err := k.FinishUpgrade(ctx); err != nil || got.Level != next {
					t.Errorf("the cell is at level %d, want %d: %v", got.Level, next, err)
				}
			})
		}
		operators.Wait()
	})
}
