//go:build linux

package recipe

import (
	"testing"
	"time"
)

// Candidates of the same rank are listed in the order in which they will be elected.
func TestCandidatesInTheOrderOfTheQueue(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{}))
		var all []*candidacy
		for _, name := range []string{"z", "m", "a", "y"} {
			all = append(all, w.campaign(name, CampaignOptions{}))
			pass(time.Second)
		}
		w.campaign("b", CampaignOptions{Priority: -1})
		pass(time.Second)
		list, err := Candidates(w.ctx, w.dial("operator"), office)
		w.ok(err)
		if got := summary(list); got != "first! z:1 m:1 a:1 y:1 b:5" {
			t.Errorf("the candidates are %s", got)
		}
		for _, k := range all {
			w.ok(p.Resign(w.ctx))
			pass(time.Second)
			p = w.primary(k)
		}
	})
}
