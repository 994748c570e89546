//go:build linux

package recipe

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
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
				list, err := Candidates(w.Ctx, other, office)
				w.OK(err)
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
			ctx, cancel := w.Brief(time.Minute)
			defer cancel()
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
		h, err := c.Open(w.Ctx, office, client.OpenOptions{Write: true, Create: client.File})
		w.OK(err)
		l, err := h.Acquire(w.Ctx, api.Exclusive)
		w.OK(err)
		w.campaignOf(c, "one", CampaignOptions{Priority: 2})
		w.campaign("two", CampaignOptions{Priority: 1})
		pass(time.Second)
		w.campaign("three", CampaignOptions{})
		pass(time.Second)
		w.OK(Nominate(w.Ctx, c, office, "one"))
		list, err := Candidates(w.Ctx, c, office)
		w.OK(err)
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
