//go:build linux

package recipe

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A candidate that is registered no more, because a stranger has put a file in the place of its own, is told at once,
// also while it stands back for a better one.
func TestCandidateLosesItsNameWhileItStandsBack(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		p := w.primary(w.campaign("first", CampaignOptions{LockDelay: NoLockDelay}))
		cfg := w.config("low")
		cfg.NoCache = true // so that nobody waits for it
		c, err := client.New(w.ctx, cfg)
		w.ok(err)
		w.t.Cleanup(func() { end(c) })
		low := w.campaignOf(c, "low", CampaignOptions{LockDelay: NoLockDelay})
		pass(time.Second)
		better := w.campaign("better", CampaignOptions{LockDelay: NoLockDelay, Priority: 1})
		pass(time.Second)
		w.waits(low, better)
		w.Cut("low")
		w.rm(p.c, candidatesOf(office)+"/low")
		w.put(p.c, candidatesOf(office)+"/low", "a stranger's")
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
