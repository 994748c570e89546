package cell_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Every call is measured once, when it has been answered, with its method and its code; so is a KeepAlive, which waits
// without a goroutine. What calls wait for is measured, too.
func TestCallsAreMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		first, second := dial(t, ctx, c, "first", client.Config{}), dial(t, ctx, c, "second", client.Config{})
		held := acquire(t, ctx, open(t, ctx, first, "/ls/local/lock", 0))
		waits := open(t, ctx, second, "/ls/local/lock", 0)
		if _, err := first.Open(ctx, "/ls/local/none", client.OpenOptions{Read: true}); api.CodeOf(err) != api.NotFound {
			t.Fatal(err)
		}
		master := c.Replica(c.Master())
		before, sumsBefore := cell.Measured(master)
		granted := make(chan error)
		go func() {
			_, err := waits.Acquire(ctx, api.Exclusive)
			granted <- err
		}()
		time.Sleep(20 * time.Second)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after, sums := cell.Measured(master)
		for method, want := range map[string]uint64{"Acquire": 1, "Release": 1, "Open": 0} {
			var more uint64
			for name, n := range after { // of every code
				if strings.HasPrefix(name, "chubby_call_seconds ") && strings.HasSuffix(name, " "+method) {
					more += n - before[name]
				}
			}
			if more != want {
				t.Errorf("%d more calls of %s were counted, want %d: %v", more, method, want, after)
			}
		}
		if got := before["chubby_call_seconds OK Open"]; got != 2 {
			t.Errorf("%d calls of Open were answered, want 2", got)
		}
		if got := before["chubby_call_seconds NotFound Open"]; got != 1 {
			t.Errorf("%d calls of Open were answered with NotFound, want 1", got)
		}
		const acquire = "chubby_call_seconds OK Acquire"
		if took := sums[acquire] - sumsBefore[acquire]; took < 20 || took > 21 {
			t.Errorf("Acquire took %v s, want 20", took)
		}
		for _, name := range []string{"chubby_lock_wait_seconds ", "chubby_lock_hold_seconds "} { // of the prefix ""
			if n, took := after[name]-before[name], sums[name]-sumsBefore[name]; n != 1 || took < 20 || took > 21 {
				t.Errorf("%s: %d of %v s, want one of 20", name, n, took)
			}
		}
		const keepAlives = "chubby_call_seconds OK KeepAlives"
		if after[keepAlives] == before[keepAlives] {
			t.Errorf("in 20 s no KeepAlive was answered: %v", after)
		}
		for name, n := range after {
			if strings.HasSuffix(name, " KeepAlives") && name != keepAlives && n > 0 {
				t.Errorf("%s: %d, but all were answered well: one was counted when it began to wait", name, n)
			}
		}
		for _, name := range []string{"chubby_log_append_seconds", "chubby_apply_seconds", "chubby_leadership_proof_seconds", "chubby_takeover_seconds"} {
			if after[name] == 0 {
				t.Errorf("%s was never measured", name)
			}
		}
		if n := after["chubby_takeover_seconds"]; n != 1 {
			t.Errorf("%d takeovers, want 1", n)
		}
	})
}

// What waits is to be seen while it does, and how far the other replicas are.
func TestBacklogIsMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		first, second := dial(t, ctx, c, "first", client.Config{}), dial(t, ctx, c, "second", client.Config{})
		held := acquire(t, ctx, open(t, ctx, first, "/ls/local/lock", 0))
		waits := open(t, ctx, second, "/ls/local/lock", 0)
		granted := make(chan error)
		go func() {
			_, err := waits.Acquire(ctx, api.Exclusive)
			granted <- err
		}()
		time.Sleep(10 * time.Second) // the others are asked every five
		r := c.Replica(c.Master())
		now := cell.Gauges(r)
		for name, want := range map[string]float64{
			"chubby_lock_requests_waiting": 1, "chubby_handles_open": 2, "chubby_changes_waiting": 0, "chubby_lock_delays": 0, "chubby_commands_waiting": 0,
		} {
			if now[name] != want {
				t.Errorf("%s is %v, want %v", name, now[name], want)
			}
		}
		for _, name := range []string{"chubby_cached_copies_bytes", "chubby_events_waiting_bytes"} {
			if _, there := now[name]; !there {
				t.Errorf("%s is missing", name)
			}
		}
		peers := 0
		for name, index := range now {
			if strings.HasPrefix(name, "chubby_peer_held_index ") {
				peers++
				if index == 0 || index > now["chubby_applied_index"] {
					t.Errorf("%s is %v, here %v", name, index, now["chubby_applied_index"])
				}
			}
		}
		if want := len(c.Servers()) - 1; peers != want {
			t.Errorf("%d other replicas are shown, want %d", peers, want)
		}
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if now := cell.Gauges(r); now["chubby_lock_requests_waiting"] != 0 {
			t.Errorf("%v requests wait, and all were granted", now["chubby_lock_requests_waiting"])
		}
		for i := range c.Servers() {
			id := fmt.Sprintf("r%d", i+1)
			if id != c.Master() && cell.Gauges(c.Replica(id))["chubby_handles_open"] != 0 {
				t.Errorf("%s, not the master, shows what masters keep", id)
			}
		}
	})
}
