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
