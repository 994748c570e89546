//go:build linux

package recipe

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// The value is that of who has the lock, and nobody's while he has not written; also of primaries who know
// nothing of Campaign, and for sessions that cache and that do not.
func TestLeader(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		cfg := w.config("uncached")
		cfg.NoCache = true
		uncached, err := client.New(w.ctx, cfg)
		w.ok(err)
		w.t.Cleanup(func() { end(uncached) })
		readers := []*client.Client{w.dial("cached"), uncached}
		expect := func(what, want string, by api.SessionID) {
			t.Helper()
			for _, c := range readers {
				r, err := Leader(w.ctx, c, office)
				got := string(r.Value)
				switch {
				case r.Vacant:
					got = "-"
				case r.Value == nil:
					got = "…"
				}
				if err != nil || got != want || r.Holder.Session != by || r.Vacant != (by == 0) || r.Sure != (r.Value != nil) {
					t.Errorf("%s: %+v, %v; want %q of %v", what, r, err, want, by)
				}
			}
		}
		expect("no file", "-", 0)
		script := w.dial("script")
		w.put(script, office, "old")
		expect("a file", "-", 0)
		h, err := script.Open(w.ctx, office, client.OpenOptions{Write: true})
		w.ok(err)
		l, err := h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		expect("a lock", "…", script.Session())
		for _, value := range []string{"one", "", "two"} {
			_, err = h.SetContents(w.ctx, []byte(value))
			w.ok(err)
			expect("a value", value, script.Session())
		}
		w.failOver()
		expect("a fail-over", "two", script.Session())
		w.ok(l.Release(w.ctx))
		expect("a release", "-", 0)
		l, err = h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		expect("the same again", "…", script.Session())
		w.ok(l.Release(w.ctx))
		k := w.campaign("anna", CampaignOptions{})
		p := w.primary(k)
		expect("a campaign", "anna", k.Session())
		w.ok(p.SetValue(w.ctx, []byte("changed")))
		expect("another value", "changed", k.Session())
		w.ok(p.Resign(w.ctx))
		w.rm(script, office)
		expect("a deletion", "-", 0)
		w.put(script, office, "again")
		expect("another file", "-", 0)
		next := w.campaign("bert", CampaignOptions{})
		w.primary(next)
		expect("a campaign", "bert", next.Session())
		if _, err := Leader(w.ctx, script, "/ls/local"); api.CodeOf(err) != api.IsDirectory {
			t.Errorf("a directory: %v", err)
		}
	})
}

// Whoever is far from the cell, so that there is another primary while he asks, has never the value of one with
// another as its holder.
func TestLeaderOfOneMoment(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const way = 60 * time.Millisecond // a call takes twice that, and an answer is four calls
		w.Slow("far", way)
		cfg := w.config("far")
		cfg.NoCache = true // so that it looks at the file each time
		far, err := client.New(w.ctx, cfg)
		w.ok(err)
		defer end(far)
		ctx, stop := context.WithCancel(w.ctx)
		names := map[api.SessionID]string{}
		var primaries sync.WaitGroup
		for _, name := range []string{"anna", "bert"} {
			c := w.dial(name)
			names[c.Session()] = name
			h, err := c.Open(w.ctx, office, client.OpenOptions{Write: true, Create: client.File})
			w.ok(err)
			primaries.Go(func() {
				for ctx.Err() == nil {
					l, err := h.Acquire(ctx, api.Exclusive)
					if err != nil {
						return
					}
					pass(rand.N(10 * way))
					if _, err := h.SetContents(w.ctx, []byte(name), client.IfSequencer(l.Sequencer())); err != nil {
						t.Error(err)
					}
					pass(rand.N(10 * way))
					if err := l.Release(w.ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		told := map[string]int{}
		for range 300 {
			r, err := Leader(w.ctx, far, office)
			w.ok(err)
			if r.Value != nil && string(r.Value) != names[r.Holder.Session] {
				t.Errorf("%s has the lock, with the value %q", names[r.Holder.Session], r.Value)
			}
			told[string(r.Value)]++
			pass(rand.N(way))
		}
		stop()
		primaries.Wait()
		if told["anna"] == 0 || told["bert"] == 0 || told[""] == 0 {
			t.Errorf("it was told %v: one of the cases did not come up", told)
		}
	})
}
