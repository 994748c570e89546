//go:build linux

package recipe

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Where one on the list has the lock, and has not said so yet, the next primary is the first of the others.
func TestCandidatesBesideOneThatHasNotSaidYet(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.dial("one")
		h, err := c.Open(w.ctx, office, client.OpenOptions{Write: true, Create: client.File})
		w.ok(err)
		l, err := h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		w.campaignOf(c, "one", CampaignOptions{Priority: 2})
		w.campaign("two", CampaignOptions{Priority: 1})
		pass(time.Second)
		w.campaign("three", CampaignOptions{})
		pass(time.Second)
		w.ok(Nominate(w.ctx, c, office, "one"))
		list, err := Candidates(w.ctx, c, office)
		w.ok(err)
		if len(list) != 3 || !list[0].Primary || list[0].Rank != 0 || list[0].Chosen || list[1].Name != "two" || list[1].Rank != 1 || list[2].Rank != 2 {
			t.Errorf("%+v", list)
		}
		w.ok(l.Release(w.ctx))
	})
}
