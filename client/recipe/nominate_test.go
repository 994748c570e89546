//go:build linux

package recipe

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// The primary is listed with the value of now, and not with the one of its candidacy.
func TestCandidatesHaveTheValueOfNow(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{}))
		pass(time.Second)
		w.ok(p.SetValue(w.ctx, []byte("moved")))
		list, err := Candidates(w.ctx, w.dial("operator"), office)
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
		operator, both, other := w.dial("operator"), w.dial("both"), w.dial("other")
		for i := range 8 {
			first := w.primary(w.campaignOf(other, "first", CampaignOptions{}))
			pass(time.Second)
			a := w.campaignOf(both, "a", CampaignOptions{})
			pass(time.Second)
			b := w.campaignOf(both, "b", CampaignOptions{})
			pass(time.Second)
			nominated := make(chan error, 1)
			go func() { nominated <- Nominate(w.ctx, operator, office, "b") }()
			pass(time.Duration(i) * 3 * way)
			w.ok(first.Resign(w.ctx))
			if err := <-nominated; err != nil && !errors.Is(err, api.NotFound) {
				t.Errorf("%d: %v", i, err)
			} else if err == nil {
				pass(time.Second)
				list, err := Candidates(w.ctx, other, office)
				w.ok(err)
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
						w.ok(p.Resign(w.ctx))
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
		one, two := w.dial("one"), w.dial("two")
		campaign := func(size int) (*Primary, error) {
			ctx, cancel := w.brief(time.Minute)
			defer cancel()
			return Campaign(ctx, one, office, CampaignOptions{Name: "one", Value: bytes.Repeat([]byte("v"), size), Priority: 5})
		}
		size := api.MaxContents
		p, err := campaign(size)
		for ; errors.Is(err, api.TooLarge) && size > api.MaxContents-1000; p, err = campaign(size) {
			size--
		}
		w.ok(err)
		w.campaignOf(two, "two", CampaignOptions{})
		pass(time.Second)
		if n := w.queue(two); n != 1 {
			t.Errorf("with a value of %d bytes, %d wait for the lock", size, n)
		}
		w.ok(Nominate(w.ctx, two, office, "two"))
		pass(time.Second)
		if !wasAsked(p) {
			t.Error("the primary is not asked to make room")
		}
		w.ok(p.Resign(w.ctx))
	})
}
