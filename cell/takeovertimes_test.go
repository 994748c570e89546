package cell_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// What a take-over takes is measured part by part: the first two are the whole, and the others begin then. One client cannot
// be reached, so the caches take a cache lease.
func TestTakeoverIsMeasuredByPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		c := celltest.Start(t, 3)
		near, far := dial(t, ctx, c, "near", client.Config{}), dial(t, ctx, c, "far", client.Config{})
		open(t, ctx, near, "/ls/local/file", 0)
		open(t, ctx, far, "/ls/local/file", 0)
		c.Cut("far")
		c.FailOver()
		time.Sleep(15 * time.Second)
		counts, sums := cell.Measured(c.Replica(c.Master()))
		const phase = "chubby_takeover_phase_seconds "
		for _, name := range []string{"chubby_takeover_seconds", phase + "election", phase + "log", phase + "leases", phase + "first_lease", phase + "sessions", phase + "caches"} {
			if counts[name] != 1 {
				t.Errorf("%s was measured %d times; want once", name, counts[name])
			}
		}
		if parts, whole := sums[phase+"log"]+sums[phase+"leases"], sums["chubby_takeover_seconds"]; math.Abs(parts-whole) > 1e-9 {
			t.Errorf("log and leases took %v s, and the take-over %v", parts, whole)
		}
		if took := sums[phase+"caches"]; took < 1 || took > api.CacheLease.Seconds()+1 {
			t.Errorf("caches took %v s, and a client that cannot be reached has a cache lease of %v", took, api.CacheLease)
		}
		if took := sums[phase+"first_lease"]; took > sums[phase+"caches"] {
			t.Errorf("the first lease took %v s, as long as if the client that cannot be reached were waited for", took)
		}
		c.Heal("far")
	})
}

// If the only session that outlived the master is dead, there is no first lease: none is waited for when it has ended, and that of a client that
// comes hours later is no part of the take-over.
func TestNoFirstLeaseOfADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c := celltest.Start(t, 3)
		dial(t, ctx, c, "far", client.Config{})
		c.Cut("far")
		c.FailOver()
		time.Sleep(2 * time.Minute)
		late := dial(t, ctx, c, "late", client.Config{})
		time.Sleep(15 * time.Second)
		counts, _ := cell.Measured(c.Replica(c.Master()))
		for name, want := range map[string]uint64{"leases": 1, "first_lease": 0, "sessions": 1} {
			if n := counts["chubby_takeover_phase_seconds "+name]; n != want {
				t.Errorf("%s was measured %d times; want %d", name, n, want)
			}
		}
		o, err := late.Cell().Overview(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range o.Takeovers[0].Phases {
			if p.Unfinished || p.Name == "first_lease" {
				t.Errorf("two minutes after the take-over it has the phase %+v", p)
			}
		}
		c.Heal("far")
	})
}

// Where nobody outlived a master, nobody is waited for: a session that comes hours later is no part of the take-over.
func TestNoPhaseWithoutSessions(t *testing.T) {
	inCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell) {
		time.Sleep(time.Minute)
		dial(t, ctx, c, "late", client.Config{})
		time.Sleep(15 * time.Second)
		counts, _ := cell.Measured(c.Replica(c.Master()))
		for name, want := range map[string]uint64{"election": 0, "log": 1, "leases": 1, "first_lease": 0, "sessions": 0, "caches": 0, "first_grant": 0} {
			if n := counts["chubby_takeover_phase_seconds "+name]; n != want {
				t.Errorf("%s was measured %d times; want %d", name, n, want)
			}
		}
		if cell.Gauges(c.Replica(c.Master()))["chubby_sessions"] != 1 {
			t.Error("there is no session")
		}
	})
}
