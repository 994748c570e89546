package cell_test

import (
	"context"
	"errors"
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
// without a goroutine. What calls wait for is measured, too. What waits is to be seen while it does, and how far the other replicas are.
func TestCallsAreMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		first, second := dial(t, ctx, c, "first", client.Config{}), dial(t, ctx, c, "second", client.Config{})
		held := acquire(t, ctx, open(t, ctx, first, "/ls/local/lock", 0))
		waits := open(t, ctx, second, "/ls/local/lock", 0)
		mustFail(t, errOf(first.Open(ctx, "/ls/local/none", client.OpenOptions{Read: true})), api.NotFound)
		master := c.Replica(c.Master())
		before, sumsBefore := cell.Measured(master)
		granted := make(chan error)
		go func() {
			_, err := waits.Acquire(ctx, api.Exclusive)
			granted <- err
		}()
		time.Sleep(20 * time.Second) // the others are asked every five
		now := cell.Gauges(master)
		for name, want := range map[string]float64{
			"chubby_lock_requests_waiting": 1, "chubby_handles_open": 2, "chubby_changes_waiting": 0, "chubby_lock_delays": 0, "chubby_commands_waiting": 0,
		} {
			failIf(t, now[name] != want, "%s is %v, want %v", name, now[name], want)
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
				failIf(t, index == 0 || index > now["chubby_applied_index"], "%s is %v, here %v", name, index, now["chubby_applied_index"])
			}
		}
		if want := len(c.Servers()) - 1; peers != want {
			t.Errorf("%d other replicas are shown, want %d", peers, want)
		}
		noErr(t, held.Release(ctx))
		noErr(t, <-granted)
		synctest.Wait()
		if now := cell.Gauges(master); now["chubby_lock_requests_waiting"] != 0 {
			t.Errorf("%v requests wait, and all were granted", now["chubby_lock_requests_waiting"])
		}
		for i := range c.Servers() {
			id := fmt.Sprintf("r%d", i+1)
			if id != c.Master() && cell.Gauges(c.Replica(id))["chubby_handles_open"] != 0 {
				t.Errorf("%s, not the master, shows what masters keep", id)
			}
		}
		after, sums := cell.Measured(master)
		for method, want := range map[string]uint64{"Acquire": 1, "Release": 1, "Open": 0} {
			var more uint64
			for name, n := range after { // of every code
				if strings.HasPrefix(name, "chubby_call_seconds ") && strings.HasSuffix(name, " "+method) {
					more += n - before[name]
				}
			}
			failIf(t, more != want, "%d more calls of %s were counted, want %d: %v", more, method, want, after)
		}
		equal(t, before["chubby_call_seconds OK Open"], 2, "%d calls of Open were answered")
		equal(t, before["chubby_call_seconds NotFound Open"], 1, "%d calls of Open were answered with NotFound")
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
		failIf(t, after[keepAlives] == before[keepAlives], "in 20 s no KeepAlive was answered: %v", after)
		for name, n := range after {
			if strings.HasSuffix(name, " KeepAlives") && name != keepAlives && n > 0 {
				t.Errorf("%s: %d, but all were answered well: one was counted when it began to wait", name, n)
			}
		}
		for _, name := range []string{"chubby_log_append_seconds", "chubby_apply_seconds", "chubby_leadership_proof_seconds", "chubby_takeover_seconds"} {
			failIf(t, after[name] == 0, "%s was never measured", name)
		}
		equal(t, after["chubby_takeover_seconds"], 1, "%d takeovers")
	}, calm)
}

// A replica that serves, or follows a master that it reaches, is shown as ready, and one that is cut off is not: a follower, or
// the master of before.
func TestReadinessIsMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, _ context.Context, c *celltest.Cell) {
		for _, follows := range []bool{true, false} {
			alone := c.Master()
			if follows {
				alone = others(3, alone)[0]
			}
			for _, step := range []struct {
				take func(...string)
				want float64 // of that replica
			}{{func(...string) {}, 1}, {c.Isolate, 0}, {c.Rejoin, 1}} {
				step.take(alone)
				time.Sleep(10 * time.Second)
				for _, id := range others(3) {
					want := 1.0
					if id == alone {
						want = step.want
					}
					if now := cell.Gauges(c.Replica(id))["chubby_ready"]; now != want {
						t.Errorf("%s alone: chubby_ready of %s is %v, want %v: %+v", alone, id, now, want, c.Replica(id).Health())
					}
				}
			}
		}
	}, calm)
}

// Each kind of quota shows the share of that principal which uses most of its own, however little others use, and nobody's name.
func TestQuotasAreMeasured(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		shares := func() map[string]float64 {
			found := map[string]float64{}
			for name, value := range cell.Gauges(c.Replica(c.Master())) {
				if kind, ok := strings.CutPrefix(name, "chubby_quota_used_ratio "); ok {
					found[kind] = value
				}
			}
			return found
		}
		root := dial(t, ctx, c, "root", client.Config{As: "root"})
		much, little := dial(t, ctx, c, "much", client.Config{As: "much"}), dial(t, ctx, c, "little", client.Config{As: "little"})
		for _, principal := range []string{"much", "little"} {
			noErr(t, root.SetPrincipalQuota(ctx, principal, api.Quota{Nodes: 10, Bytes: 100, Sessions: 2, Handles: 8, Waiters: 4}))
		}
		for i := range 5 {
			h := open(t, ctx, much, fmt.Sprintf("/ls/local/much-%d", i), 0)
			must(h.SetContents(ctx, make([]byte, 15)))(t)
			if i < 1 {
				open(t, ctx, little, "/ls/local/little", 0)
			}
		}
		held := acquire(t, ctx, open(t, ctx, much, "/ls/local/much-0", 0))
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		waits := open(t, ctx, little, "/ls/local/much-0", 0)
		go func() {
			defer close(ended)
			_, _ = waits.Acquire(waiting, api.Exclusive)
		}()
		time.Sleep(11 * time.Second)
		for kind, want := range map[string]float64{"nodes": 0.5, "bytes": 0.75, "sessions": 0.5, "handles": 0.75, "waiters": 0.25} {
			if got := shares()[kind]; got != want {
				t.Errorf("%s is %v, want %v", kind, got, want)
			}
		}
		failIf(t, len(shares()) != 5, "%v: want five kinds", shares())
		cancel()
		<-ended
		noErr(t, held.Release(ctx))
		noErr(t, root.SetPrincipalQuota(ctx, "much", api.Quota{Nodes: 4})) // fewer than it has
		equal(t, shares()["nodes"], 0.5, "nodes is %v at once: all principals were looked at again for every page")
		time.Sleep(11 * time.Second)
		if now := shares(); now["nodes"] != 1.25 || now["waiters"] != 0 {
			t.Errorf("%v; want 1.25 of the nodes, and nobody who waits", now)
		}
		for i := range c.Servers() {
			id := fmt.Sprintf("r%d", i+1)
			if share, shown := cell.Gauges(c.Replica(id))["chubby_quota_used_ratio nodes"]; !shown || id != c.Master() && share != 0 {
				t.Errorf("%s shows %v, %v; the master is %s", id, share, shown, c.Master())
			}
		}
	}, calm)
}

// BenchmarkCalls measures what one client's calls allocate, in the client and in a cell of one replica together:
// docs/dev/allocations.md has the table. It says little of times, since nothing is replicated.
func BenchmarkCalls(b *testing.B) {
	c := celltest.Start(b, 1)
	cl, err := client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease, NoCache: true})
	noErr(b, err)
	defer cl.Close(b.Context())
	open := func(path string, o client.OpenOptions) *client.Handle {
		o.Read, o.Write, o.Create = true, true, client.File
		return must(cl.Open(b.Context(), path, o))(b)
	}
	h := open("/ls/local/f", client.OpenOptions{})
	keeper := open("/ls/local/kept", client.OpenOptions{CacheLock: true})
	lock := func(h *client.Handle) error {
		l, err := h.Acquire(b.Context(), api.Exclusive)
		if err == nil {
			err = l.Release(b.Context())
		}
		return err
	}
	contents := make([]byte, 256)
	for _, what := range []struct {
		name string
		call func() error
	}{
		{"lock+unlock", func() error { return lock(h) }},
		{"kept lock+unlock", func() error { return lock(keeper) }},
		{"write 256 B", func() error { _, err := h.SetContents(b.Context(), contents); return err }},
		{"read 256 B", func() error { _, _, err := h.Contents(b.Context()); return err }},
		{"open and close", func() error {
			h, err := cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true})
			if err == nil {
				err = h.Close(b.Context())
			}
			return err
		}},
	} {
		b.Run(what.name, func(b *testing.B) {
			for range 20 { // connections, pools and tables grow to their size
				noErr(b, what.call())
			}
			b.ReportAllocs()
			for b.Loop() {
				noErr(b, what.call())
			}
		})
	}
}

// BenchmarkCached measures the cost of a read from the cache, including the
// check of the lease by the real clock; docs/performance.md has the figures.
func BenchmarkCached(b *testing.B) {
	c := celltest.Start(b, 1)
	cl := must(client.New(b.Context(), client.Config{Servers: c.Servers(), Dialer: c.Dial, Lease: api.MaxLease}))(b)
	defer cl.Close(b.Context())
	h := must(cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true, Write: true, Create: client.File}))(b)
	must(h.SetContents(b.Context(), make([]byte, 100)))(b)
	d := must(cl.Open(b.Context(), "/ls/local", client.OpenOptions{Read: true}))(b)
	for name, read := range map[string]func() error{
		"contents": func() error { _, _, err := h.Contents(b.Context()); return err },
		"stat":     func() error { _, err := h.Stat(b.Context()); return err },
		"listing":  func() error { _, err := d.ReadDir(b.Context()); return err },
		"absence": func() error {
			_, err := cl.Open(b.Context(), "/ls/local/absent", client.OpenOptions{Read: true})
			if errors.Is(err, api.NotFound) {
				return nil
			}
			return err
		},
		"open and close": func() error {
			h, err := cl.Open(b.Context(), "/ls/local/f", client.OpenOptions{Read: true})
			if err == nil {
				err = h.Close(b.Context())
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			if err := read(); err != nil { // from the cell
				b.Fatal(err)
			}
			before := cl.Stats().Cache
			b.ReportAllocs()
			for b.Loop() {
				noErr(b, read())
			}
			after := cl.Stats().Cache
			if calls := after.Misses - before.Misses; calls > 0 {
				b.Errorf("%d calls for %d reads", calls, after.Hits-before.Hits)
			}
		})
	}
}
