//go:build linux

package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Those of equal rank come, and are listed, in the order in which they began to wait, and a primary that has resigned, in
// whichever way often, is none.
func TestCampaignInTurn(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		var all []*candidacy
		for _, name := range []string{"mike", "zoe", "anna", "yan"} {
			all = append(all, w.campaign(name, CampaignOptions{LockDelay: NoLockDelay}))
			time.Sleep(time.Second)
		}
		if list, err := Candidates(w.Ctx, all[0].Client, office); err != nil || summary(list) != "mike! zoe:1 anna:1 yan:1" {
			t.Errorf("in turn: %s, %v", summary(list), err)
		}
		var token uint64
		for i, k := range all {
			p := w.primary(k)
			w.waits(all[i+1:]...)
			if p.Lock().Token() <= token || p.Context().Err() != nil || wasAsked(p) {
				t.Errorf("%s: token %d after %d, %v", k.name, p.Lock().Token(), token, p.Context().Err())
			}
			token = p.Lock().Token()
			w.OK(p.SetValue(w.Ctx, []byte("still "+k.name)))
			for range 2 {
				w.OK(p.Resign(w.Ctx))
			}
			if err := p.SetValue(w.Ctx, []byte("late")); err == nil || p.Context().Err() == nil {
				t.Errorf("%s has resigned, and could write", k.name)
			}
		}
		if list, err := Candidates(w.Ctx, all[0].Client, office); err != nil || len(list) != 0 {
			t.Errorf("at the end: %+v %v", list, err)
		}
	})
}

// An attempt to resign that was not answered can be made again, and says when the lock is given up.
func TestResignAgain(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		k := w.campaign("anna", CampaignOptions{LockDelay: 10 * time.Second})
		p := w.primary(k)
		next := w.campaign("bert", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		w.Cut("anna")
		if err := p.Resign(w.brief(3 * time.Second)); err == nil || p.Context().Err() == nil {
			t.Errorf("resigned without an answer: %v", err)
		}
		w.waits(next)
		w.Heal("anna")
		w.OK(p.Resign(w.Ctx))
		w.primary(next)
	})
}

// A candidate of a higher priority is preferred, and asks the primary, who need not resign.
func TestPriority(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		low := w.campaign("low", CampaignOptions{LockDelay: NoLockDelay, Priority: 1})
		p := w.primary(low)
		middle := w.campaign("middle", CampaignOptions{LockDelay: NoLockDelay, Priority: 2})
		time.Sleep(time.Second)
		if !wasAsked(p) {
			t.Error("the primary is not asked to make room for the middle")
		}
		same := w.campaign("same", CampaignOptions{LockDelay: NoLockDelay, Priority: 1})
		high := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 3})
		time.Sleep(time.Second)
		if n := w.queue(high.Client); n != 1 {
			t.Errorf("%d wait for the lock; want the highest alone", n)
		}
		w.waits(middle, same, high)
		list := ok(Candidates(w.Ctx, high.Client, office))(w)
		if text := summary(list); text != "low! high:1 middle:2 same:3" {
			t.Error(text)
		}
		w.OK(p.Resign(w.Ctx))
		p = w.primary(high)
		if wasAsked(p) {
			t.Error("the highest is asked")
		}
		w.OK(p.Resign(w.Ctx))
		w.OK(w.primary(middle).Resign(w.Ctx))
		w.OK(w.primary(same).Resign(w.Ctx))
	})
}

// summary writes candidates as "primary! name:rank chosen*:rank".
func summary(list []Candidate) string {
	var words []string
	for _, k := range list {
		switch {
		case k.Primary:
			words = append(words, k.Name+"!")
		case k.Chosen:
			words = append(words, fmt.Sprintf("%s*:%d", k.Name, k.Rank))
		default:
			words = append(words, fmt.Sprintf("%s:%d", k.Name, k.Rank))
		}
	}
	return strings.Join(words, " ")
}

// A primary hands over to the candidate of a name, whoever waits before it, and of whatever priority.
func TestHandOver(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		high := w.campaign("high", CampaignOptions{LockDelay: NoLockDelay, Priority: 9})
		same := w.campaign("same", CampaignOptions{LockDelay: NoLockDelay})
		last := w.campaign("last", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		err := p.HandOver(w.Ctx, "nobody")
		if !errors.Is(err, api.NotFound) || !strings.Contains(err.Error(), "same") || p.Context().Err() != nil {
			t.Errorf("hand-over to nobody: %v, %v", err, p.Context().Err())
		}
		if err := p.HandOver(w.Ctx, "first"); !errors.Is(err, api.NotFound) || p.Context().Err() != nil {
			t.Errorf("hand-over to oneself: %v, %v", err, p.Context().Err())
		}
		w.OK(p.HandOver(w.Ctx, "last"))
		p = w.primary(last)
		w.waits(high, same)
		time.Sleep(time.Second)
		if wasAsked(p) {
			t.Error("who was chosen is asked, by one of a higher priority")
		}
		w.OK(p.HandOver(w.Ctx, "same"))
		p = w.primary(same)
		w.OK(p.Resign(w.Ctx))
		w.OK(w.primary(high).Resign(w.Ctx))
	})
}

// Who is chosen and dies holds nobody up for longer than its session lasts.
func TestHandOverToTheDead(t *testing.T) {
	for _, trouble := range []struct {
		name string
		make func(w *world, k *candidacy)
		most time.Duration
	}{
		{"expired", func(w *world, k *candidacy) { w.Expire(k.Session()) }, 2 * time.Second},
		{"cut off", func(w *world, k *candidacy) { w.Cut(k.name) }, api.DefaultLease + 3*time.Second},
		{"gave up", func(_ *world, k *candidacy) { k.stop() }, time.Second},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			inSmallWorld(t, func(w *world) {
				first := w.campaign("first", CampaignOptions{LockDelay: NoLockDelay})
				p := w.primary(first)
				chosen := w.campaign("chosen", CampaignOptions{LockDelay: NoLockDelay})
				second := w.campaign("second", CampaignOptions{LockDelay: NoLockDelay})
				time.Sleep(time.Second)
				w.OK(Nominate(w.Ctx, first.Client, office, "chosen"))
				trouble.make(w, chosen)
				w.OK(p.Resign(w.Ctx))
				time.Sleep(trouble.most)
				w.primary(second)
			})
		})
	}
}

// An operator chooses who is next; of two who were chosen it is the second. With the reign the choice is
// over.
func TestNominate(t *testing.T) {
	inSmallWorld(t, func(w *world) {
		operator := w.Client("operator")
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		a, b, c := w.campaign("a", CampaignOptions{LockDelay: NoLockDelay, Priority: 0}), w.campaign("b", CampaignOptions{LockDelay: NoLockDelay}), w.campaign("c", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		if wasAsked(p) {
			t.Error("asked for nobody")
		}
		w.OK(Nominate(w.Ctx, operator, office, "b"))
		time.Sleep(time.Second)
		if !wasAsked(p) || w.queue(operator) != 1 {
			t.Errorf("asked %v, %d wait for the lock", wasAsked(p), w.queue(operator))
		}
		w.OK(Nominate(w.Ctx, operator, office, "c"))
		list := ok(Candidates(w.Ctx, operator, office))(w)
		if text := summary(list); text != "first! c*:1 b*:2 a:3" {
			t.Error(text)
		}
		w.OK(p.Resign(w.Ctx))
		p = w.primary(c)
		time.Sleep(time.Second)
		list = ok(Candidates(w.Ctx, operator, office))(w)
		if text := summary(list); text != "c! a:1 b:1" && text != "c! b:1 a:1" || wasAsked(p) { // they came back to the queue at the same time
			t.Error(text, wasAsked(p))
		}
		wants(t, "Nominate", Nominate(w.Ctx, operator, office, "nobody"), api.NotFound)
		w.waits(a, b)
	})
}

// The office passes on when its holder is cut off, or its session ends; never before the context of the
// one has ended; and not when masters fail.
func TestPrimaryDies(t *testing.T) {
	const delay = 5 * time.Second
	for _, trouble := range []struct {
		name   string
		make   func(w *world, k *candidacy)
		passes bool
	}{
		{"expired", func(w *world, k *candidacy) { w.Expire(k.Session()) }, true},
		{"cut off", func(w *world, k *candidacy) { w.Cut(k.name) }, true},
		{"lock broken", func(w *world, k *candidacy) {
			w.OK(w.Client("operator").BreakLock(w.Ctx, office, "test", false))
		}, true},
		{"master killed", func(w *world, _ *candidacy) { w.Succeed() }, false},
		{"handed to another master", func(w *world, _ *candidacy) { w.Transfer() }, false},
	} {
		in := inWorld
		if trouble.passes {
			in = inSmallWorld
		}
		t.Run(trouble.name, func(t *testing.T) {
			in(t, func(w *world) {
				first := w.campaign("first", CampaignOptions{LockDelay: delay, Priority: 7})
				p := w.primary(first)
				second := w.campaign("second", CampaignOptions{LockDelay: delay})
				time.Sleep(time.Second)
				ended := make(chan time.Time, 1)
				context.AfterFunc(p.Context(), func() { ended <- time.Now() })
				trouble.make(w, first)
				if !trouble.passes {
					w.Settle()
					w.waits(second)
					w.OK(p.Resign(w.Ctx))
					w.primary(second)
					return
				}
				go func() {
					<-p.Context().Done()
					_ = p.Resign(w.brief(time.Minute)) // it says that the work has stopped
				}()
				next := <-second.won
				if next == nil || p.Context().Err() == nil || time.Since(<-ended) < 0 || next.Lock().Token() <= p.Lock().Token() {
					t.Fatalf("the next is %v, and the first: %v", next, p.Context().Err())
				}
				w.Heal("first")
				if err := p.SetValue(w.Ctx, []byte("stale")); err == nil {
					t.Error("a primary of before could write")
				}
				if value := w.Cat(second.Client, office); value != "second" {
					t.Error(value)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// A campaign that is given up leaves nothing; one whose file, or whose registration, is deleted goes on.
func TestCampaignDisturbed(t *testing.T) {
	inWorld(t, func(w *world) {
		operator := w.Client("operator")
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		a, b := w.campaign("a", CampaignOptions{LockDelay: NoLockDelay}), w.campaign("b", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		a.stop()
		time.Sleep(time.Second)
		if _, there := <-a.won; there || !errors.Is(a.err, api.Cancelled) || !errors.Is(a.err, context.Canceled) {
			t.Errorf("given up: %v", a.err)
		}
		for _, name := range []string{"b", "first"} {
			w.Rm(operator, candidatesOf(office)+"/"+name)
		}
		time.Sleep(time.Second)
		taken := w.campaignOf(w.Client("other"), "b", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(inherit + time.Second)
		list := ok(Candidates(w.Ctx, operator, office))(w)
		if text := summary(list); text != "first! b:1" {
			t.Error(text)
		}
		w.Succeed()
		w.waits(b)
		w.OK(p.Resign(w.Ctx))
		p = w.primary(b)
		w.OK(operator.BreakLock(w.Ctx, office, "test", true))
		w.Rm(operator, office)
		if _, there := <-taken.won; there || !errors.Is(taken.err, api.Exists) || !strings.Contains(taken.err.Error(), b.Session().String()) {
			t.Errorf("a name that is taken: %v", taken.err)
		}
		<-p.Context().Done()
		w.OK(p.Resign(w.Ctx))
		d := w.campaign("d", CampaignOptions{LockDelay: NoLockDelay})
		p = w.primary(d)
		e := w.campaign("e", CampaignOptions{LockDelay: NoLockDelay})
		time.Sleep(time.Second)
		w.OK(p.file.Delete(w.Ctx)) // nobody else may
		w.OK(p.Resign(w.Ctx))
		w.primary(e)
	})
}
