//go:build linux

package recipe

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

// The primary is listed with the value of now, and not with the one of its candidacy.
func TestCandidatesHaveTheValueOfNow(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{}))
		pass(time.Second)
		w.OK(p.SetValue(w.Ctx, []byte("moved")))
		list, err := Candidates(w.Ctx, w.Client("operator"), office)
		if err != nil || len(list) != 1 || string(list[0].Value) != "moved" || !list[0].Primary || list[0].Name != "first" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// A nomination is not lost because another candidate of the same session becomes the primary while it is made.
func TestNominateAmongCandidatesOfOneSession(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const way = 100 * time.Millisecond
		w.Slow("operator", way)
		operator, both, other := w.Client("operator"), w.Client("both"), w.Client("other")
		for i := range 8 {
			first := w.primary(w.campaignOf(other, "first", CampaignOptions{}))
			pass(time.Second)
			a := w.campaignOf(both, "a", CampaignOptions{})
			pass(time.Second)
			b := w.campaignOf(both, "b", CampaignOptions{})
			pass(time.Second)
			nominated := make(chan error, 1)
			go func() { nominated <- Nominate(w.Ctx, operator, office, "b") }()
			pass(time.Duration(i) * 3 * way)
			w.OK(first.Resign(w.Ctx))
			if err := <-nominated; err != nil && !errors.Is(err, api.NotFound) {
				t.Errorf("%d: %v", i, err)
			} else if err == nil {
				pass(time.Second)
				list := ok(Candidates(w.Ctx, other, office))(w)
				for _, one := range list {
					if one.Name == "b" && !one.Primary && !one.Chosen {
						t.Errorf("%d: it was nominated, and is not: %s", i, summary(list))
					}
				}
			}
			for _, k := range []*candidacy{b, a, b} { // whoever is not the primary yet is after the other
				select {
				case p := <-k.won:
					if p != nil {
						w.OK(p.Resign(w.Ctx))
					}
				case <-time.After(time.Second):
				}
			}
		}
	})
}

// Every candidate can be chosen, and can say that it is the primary: no other takes it for a candidate of a
// higher rank.
func TestCandidateOfTheGreatestValue(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two := w.Client("one"), w.Client("two")
		campaign := func(size int) (*Primary, error) {
			ctx := w.brief(time.Minute)
			return Campaign(ctx, one, office, CampaignOptions{Name: "one", Value: bytes.Repeat([]byte("v"), size), Priority: 5})
		}
		size := api.MaxContents
		p, err := campaign(size)
		for ; errors.Is(err, api.TooLarge) && size > api.MaxContents-1000; p, err = campaign(size) {
			size--
		}
		w.OK(err)
		w.campaignOf(two, "two", CampaignOptions{})
		pass(time.Second)
		if n := w.queue(two); n != 1 {
			t.Errorf("with a value of %d bytes, %d wait for the lock", size, n)
		}
		w.OK(Nominate(w.Ctx, two, office, "two"))
		pass(time.Second)
		if !wasAsked(p) {
			t.Error("the primary is not asked to make room")
		}
		w.OK(p.Resign(w.Ctx))
	})
}

// Where one on the list has the lock, and has not said so yet, the next primary is the first of the others.
func TestCandidatesBesideOneThatHasNotSaidYet(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("one")
		h := ok(c.Open(w.Ctx, office, client.OpenOptions{Write: true, Create: client.File}))(w)
		l := ok(h.Acquire(w.Ctx, api.Exclusive))(w)
		w.campaignOf(c, "one", CampaignOptions{Priority: 2})
		w.campaign("two", CampaignOptions{Priority: 1})
		pass(time.Second)
		w.campaign("three", CampaignOptions{})
		pass(time.Second)
		w.OK(Nominate(w.Ctx, c, office, "one"))
		list := ok(Candidates(w.Ctx, c, office))(w)
		if len(list) != 3 || !list[0].Primary || list[0].Rank != 0 || list[0].Chosen || list[1].Name != "two" || list[1].Rank != 1 || list[2].Rank != 2 {
			t.Errorf("%+v", list)
		}
		w.OK(l.Release(w.Ctx))
	})
}

// A candidate that is registered no more, because a stranger has put a file in the place of its own, is told at once,
// also while it stands back for a better one.
func TestCandidateLosesItsNameWhileItStandsBack(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		c := w.Client("low", func(cfg *client.Config) { cfg.NoCache = true }) // so that nobody waits for it
		low := w.campaignOf(c, "low", CampaignOptions{LockDelay: NoLockDelay})
		pass(time.Second)
		better := w.campaign("better", CampaignOptions{LockDelay: NoLockDelay, Priority: 1})
		pass(time.Second)
		w.waits(low, better)
		w.Cut("low")
		w.Rm(p.c, candidatesOf(office)+"/low")
		w.Put(p.c, candidatesOf(office)+"/low", "a stranger's")
		w.Heal("low")
		pass(3 * time.Second)
		select {
		case <-low.won:
			if !errors.Is(low.err, api.Exists) {
				t.Errorf("it ended with %v", low.err)
			}
		default:
			t.Error("it goes on, and nobody knows of it")
		}
	})
}

type observation struct{ *recipetest.Listener[Reign] }

func (w *world) observe(host string) observation {
	w.T.Helper()
	c := w.Client(host)
	o := observation{recipetest.Listen(w.World, func(ctx context.Context) iter.Seq2[Reign, error] { return Observe(ctx, c, office) })}
	pass(time.Second)
	return o
}

// seen returns what was observed since the last call: "-" for a vacancy, "value", "value?" if it is not
// sure, "…" for a primary without a value.
func (o observation) seen() string {
	return o.Words(func(r Reign) string {
		switch {
		case r.Vacant:
			return "-"
		case r.Value == nil:
			return "…"
		case r.Sure:
			return string(r.Value)
		}
		return string(r.Value) + "?"
	}, " ")
}

// An observer sees every primary and vacancy in their order, and each value as that of the primary who
// wrote it; also of primaries who know nothing of Campaign, and through fail-overs, which are no news.
func TestObserve(t *testing.T) {
	inWorld(t, func(w *world) {
		o := w.observe("observer")
		expect := func(what, want string) {
			t.Helper()
			time.Sleep(time.Second)
			if got := o.seen(); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("no file", "-")
		script := w.Client("script")
		w.Put(script, office, "old")
		expect("a file", "")
		h := ok(script.Open(w.Ctx, office, client.OpenOptions{Write: true}))(w)
		l := ok(h.Acquire(w.Ctx, api.Exclusive))(w)
		expect("a lock", "…")
		late := w.observe("late")
		if got := late.seen(); got != "old?" {
			t.Errorf("who comes late sees %q", got)
		}
		for _, value := range []string{"one", "two", ""} {
			ok(h.SetContents(w.Ctx, []byte(value)))(w)
			expect("a value", value)
		}
		w.Put(script, office, "three")
		expect("a value", "three")
		w.Succeed()
		expect("a fail-over", "")
		w.OK(l.Release(w.Ctx))
		expect("a release", "-")
		w.Put(script, office, "nobody's")
		expect("a value of nobody", "")
		a := w.primary(w.campaign("a", CampaignOptions{LockDelay: NoLockDelay}))
		b := w.campaign("b", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		w.OK(a.Resign(w.Ctx))
		p := w.primary(b)
		time.Sleep(time.Second)
		if got := strings.ReplaceAll(o.seen(), "… ", ""); got != "a b" {
			t.Errorf("primaries: %q", got)
		}
		w.OK(w.Client("operator").BreakLock(w.Ctx, office, "test", true))
		w.Rm(script, office)
		expect("a deletion", "-")
		w.Put(script, office, "again")
		w.OK(p.Resign(w.Ctx))
		time.Sleep(time.Second)
		_ = o.seen()
		w.primary(w.campaign("c", CampaignOptions{LockDelay: NoLockDelay}))
		time.Sleep(time.Second)
		if got := strings.ReplaceAll(o.seen(), "… ", ""); got != "c" {
			t.Errorf("primaries: %q", got)
		}
	})
}

// What happens while an observer is cut off, or while there is no master, is found out afterwards, and a
// value of before is not told as that of the primary of now.
func TestObserveLate(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.campaign("first", CampaignOptions{LockDelay: NoLockDelay})
		p := w.primary(first)
		o := w.observe("observer")
		if got := o.seen(); got != "first?" {
			t.Errorf("at first: %q", got)
		}
		w.Succeed()
		w.OK(p.SetValue(w.Ctx, []byte("changed")))
		time.Sleep(20 * time.Second)
		if got := o.seen(); got != "changed" {
			t.Errorf("after a fail-over: %q", got)
		}
		w.Cut("observer")
		w.OK(p.Resign(w.Ctx))
		script := ok(w.Client("script").Open(w.Ctx, office, client.OpenOptions{Write: true}))(w)
		ok(script.Acquire(w.Ctx, api.Exclusive))(w)
		killed := w.FailOver() // and all events are lost
		w.Heal("observer")
		w.Restart(killed)
		w.Settle()
		if got := o.seen(); got != "…" {
			t.Errorf("a primary that has written nothing: %q", got)
		}
	})
}

// check makes sure that what was observed can be: tokens that do not fall, and values only with the
// tokens of those who wrote them.
func (o observation) check(t *testing.T, written func(token uint64) []string) {
	t.Helper()
	reigns := o.Heard()
	var before Reign
	for i, r := range reigns {
		if r.Token < before.Token || i > 0 && r.same(before) {
			t.Errorf("%d: %+v after %+v", i, r, before)
		}
		if r.Sure && !slices.Contains(written(r.Token), string(r.Value)) {
			t.Errorf("%d: value %q of the primary with token %d, which wrote %v", i, r.Value, r.Token, written(r.Token))
		}
		before = r
	}
	if len(reigns) < 2 || before.Vacant || !before.Sure {
		t.Errorf("%d reigns were observed, the last is %+v", len(reigns), before)
	}
}

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
		h := ok(script.Open(w.Ctx, office, client.OpenOptions{Write: true}))(w)
		l := ok(h.Acquire(w.Ctx, api.Exclusive))(w)
		expect("a lock", "…", script.Session())
		for _, value := range []string{"one", "", "two"} {
			ok(h.SetContents(w.Ctx, []byte(value)))(w)
			expect("a value", value, script.Session())
		}
		w.Succeed()
		expect("a fail-over", "two", script.Session())
		w.OK(l.Release(w.Ctx))
		expect("a release", "-", 0)
		l = ok(h.Acquire(w.Ctx, api.Exclusive))(w)
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
			h := ok(c.Open(w.Ctx, office, client.OpenOptions{Write: true, Create: client.File}))(w)
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
			r := ok(Leader(w.Ctx, far, office))(w)
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
