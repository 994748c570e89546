//go:build linux

package recipe

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/recipetest"
	"github.com/chubbylock/chubby/client"
)

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
		h, err := script.Open(w.Ctx, office, client.OpenOptions{Write: true})
		w.OK(err)
		l, err := h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		expect("a lock", "…")
		late := w.observe("late")
		if got := late.seen(); got != "old?" {
			t.Errorf("who comes late sees %q", got)
		}
		for _, value := range []string{"one", "two", ""} {
			_, err = h.SetContents(w.Ctx, []byte(value))
			w.OK(err)
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
		script, err := w.Client("script").Open(w.Ctx, office, client.OpenOptions{Write: true})
		w.OK(err)
		_, err = script.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
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
func (o observation) check(t *testing.T, written map[uint64][]string) {
	t.Helper()
	reigns := o.Heard()
	var before Reign
	for i, r := range reigns {
		if r.Token < before.Token || i > 0 && r.same(before) {
			t.Errorf("%d: %+v after %+v", i, r, before)
		}
		if r.Sure && !slices.Contains(written[r.Token], string(r.Value)) {
			t.Errorf("%d: value %q of the primary with token %d, which wrote %v", i, r.Value, r.Token, written[r.Token])
		}
		before = r
	}
	if len(reigns) < 2 || before.Vacant || !before.Sure {
		t.Errorf("%d reigns were observed, the last is %+v", len(reigns), before)
	}
}
