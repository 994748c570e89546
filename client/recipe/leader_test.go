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
		uncached := w.Client("uncached", func(cfg *client.Config) { cfg.NoCache = true })
		readers := []*client.Client{w.Client("cached"), uncached}
		expect := func(what, want string, by api.SessionID) {
			t.Helper()
			for _, c := range readers {
				r, err := Leader(w.Ctx, c, office)
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
		script := w.Client("script")
		w.Put(script, office, "old")
		expect("a file", "-", 0)
		h, err := script.Open(w.Ctx, office, client.OpenOptions{Write: true})
		w.OK(err)
		l, err := h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		expect("a lock", "…", script.Session())
		for _, value := range []string{"one", "", "two"} {
			_, err = h.SetContents(w.Ctx, []byte(value))
			w.OK(err)
			expect("a value", value, script.Session())
		}
		w.Succeed()
		expect("a fail-over", "two", script.Session())
		w.OK(l.Release(w.Ctx))
		expect("a release", "-", 0)
		l, err = h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		expect("the same again", "…", script.Session())
		w.OK(l.Release(w.Ctx))
		k := w.campaign("anna", CampaignOptions{})
		p := w.primary(k)
		expect("a campaign", "anna", k.Session())
		w.OK(p.SetValue(w.Ctx, []byte("changed")))
		expect("another value", "changed", k.Session())
		w.OK(p.Resign(w.Ctx))
		w.Rm(script, office)
		expect("a deletion", "-", 0)
		w.Put(script, office, "again")
		expect("another file", "-", 0)
		next := w.campaign("bert", CampaignOptions{})
		w.primary(next)
		expect("a campaign", "bert", next.Session())
		if _, err := Leader(w.Ctx, script, "/ls/local"); api.CodeOf(err) != api.IsDirectory {
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
		far := w.Client("far", func(cfg *client.Config) { cfg.NoCache = true }) // so that it looks at the file each time
		ctx, stop := context.WithCancel(w.Ctx)
		names := map[api.SessionID]string{}
		var primaries sync.WaitGroup
		for _, name := range []string{"anna", "bert"} {
			c := w.Client(name)
			names[c.Session()] = name
			h, err := c.Open(w.Ctx, office, client.OpenOptions{Write: true, Create: client.File})
			w.OK(err)
			primaries.Go(func() {
				for ctx.Err() == nil {
					l, err := h.Acquire(ctx, api.Exclusive)
					if err != nil {
						return
					}
					pass(rand.N(10 * way))
					if _, err := h.SetContents(w.Ctx, []byte(name), client.IfSequencer(l.Sequencer())); err != nil {
						t.Error(err)
					}
					pass(rand.N(10 * way))
					if err := l.Release(w.Ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		told := map[string]int{}
		for range 300 {
			r, err := Leader(w.Ctx, far, office)
			w.OK(err)
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
