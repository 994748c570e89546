//go:build linux

package recipe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// observation is an Observe in the background.
type observation struct {
	mu     sync.Mutex // guards reigns
	reigns []Reign
	stop   func() // ends it, and waits
}

func (w *world) observe(host string) *observation {
	w.t.Helper()
	o, c := &observation{}, w.dial(host)
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	o.stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(o.stop)
	running.Go(func() {
		for r, err := range Observe(ctx, c, office) {
			if err != nil {
				if ctx.Err() == nil {
					w.t.Errorf("observe: %v", err)
				}
				return
			}
			o.mu.Lock()
			o.reigns = append(o.reigns, r)
			o.mu.Unlock()
		}
	})
	time.Sleep(time.Second)
	return o
}

// seen returns what was observed since the last call: "-" for a vacancy, "value", "value?" if it is not
// sure, "…" for a primary without a value.
func (o *observation) seen() string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	var words []string
	for _, r := range o.reigns {
		switch {
		case r.Vacant:
			words = append(words, "-")
		case r.Value == nil:
			words = append(words, "…")
		case r.Sure:
			words = append(words, string(r.Value))
		default:
			words = append(words, string(r.Value)+"?")
		}
	}
	o.reigns = nil
	return strings.Join(words, " ")
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
		script := w.dial("script")
		w.put(script, office, "old")
		expect("a file", "")
		h, err := script.Open(w.ctx, office, client.OpenOptions{Write: true})
		w.ok(err)
		l, err := h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		expect("a lock", "…")
		late := w.observe("late")
		if got := late.seen(); got != "old?" {
			t.Errorf("who comes late sees %q", got)
		}
		for _, value := range []string{"one", "two", ""} {
			_, err = h.SetContents(w.ctx, []byte(value))
			w.ok(err)
			expect("a value", value)
		}
		w.put(script, office, "three")
		expect("a value", "three")
		w.failOver()
		expect("a fail-over", "")
		w.ok(l.Release(w.ctx))
		expect("a release", "-")
		w.put(script, office, "nobody's")
		expect("a value of nobody", "")
		a := w.primary(w.campaign("a", CampaignOptions{LockDelay: NoLockDelay}))
		b := w.campaign("b", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		w.ok(a.Resign(w.ctx))
		p := w.primary(b)
		time.Sleep(time.Second)
		if got := strings.ReplaceAll(o.seen(), "… ", ""); got != "a b" {
			t.Errorf("primaries: %q", got)
		}
		w.ok(w.dial("operator").BreakLock(w.ctx, office, "test", true))
		w.rm(script, office)
		expect("a deletion", "-")
		w.put(script, office, "again")
		w.ok(p.Resign(w.ctx))
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
		w.failOver()
		w.ok(p.SetValue(w.ctx, []byte("changed")))
		time.Sleep(20 * time.Second)
		if got := o.seen(); got != "changed" {
			t.Errorf("after a fail-over: %q", got)
		}
		w.Cut("observer")
		w.ok(p.Resign(w.ctx))
		script, err := w.dial("script").Open(w.ctx, office, client.OpenOptions{Write: true})
		w.ok(err)
		_, err = script.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		killed := w.FailOver() // and all events are lost
		w.Heal("observer")
		w.Restart(killed)
		w.settle()
		if got := o.seen(); got != "…" {
			t.Errorf("a primary that has written nothing: %q", got)
		}
	})
}

// check makes sure that what was observed can be: tokens that do not fall, and values only with the
// tokens of those who wrote them.
func (o *observation) check(t *testing.T, written map[uint64][]string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	var before Reign
	for i, r := range o.reigns {
		if r.Token < before.Token || i > 0 && r.same(before) {
			t.Errorf("%d: %+v after %+v", i, r, before)
		}
		if r.Sure && !slices.Contains(written[r.Token], string(r.Value)) {
			t.Errorf("%d: value %q of the primary with token %d, which wrote %v", i, r.Value, r.Token, written[r.Token])
		}
		before = r
	}
	if len(o.reigns) < 2 {
		t.Errorf("%d reigns were observed", len(o.reigns))
	}
	if last := fmt.Sprintf("%+v", before); before.Vacant || !before.Sure {
		t.Errorf("at last: %s", last)
	}
}
