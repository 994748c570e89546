package sequencer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// If a lock is lost while a request waits for older requests or for the store,
// the request is refused: a Checker's answer from before the wait does not
// count.
func TestCheckerIsAskedAfterEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost uint64 // tokens up to it are lost
		var saving chan struct{}
		store := &memory{before: func(context.Context, sequencer.Sequencer) error {
			if saving != nil {
				<-saving
			}
			return nil
		}}
		guard := newGuard(t, sequencer.GuardConfig{Store: store, Checker: checker(func(s sequencer.Sequencer) error {
			if s.Token() <= lost {
				return api.Errorf(api.BadSequencer, "the lock is not held in that generation")
			}
			return nil
		})})
		slow := begin(t.Context(), guard, 41)
		slow.isInside(t)
		next := begin(t.Context(), guard, 57)
		next.waits(t)
		lost = 57
		close(slow.end)
		next.isRefused(t, api.BadSequencer)

		saving = make(chan struct{})
		stored := begin(t.Context(), guard, 60)
		stored.waits(t)
		lost = 60
		close(saving)
		stored.isRefused(t, api.BadSequencer)

		last := begin(t.Context(), guard, 61) // no older request is inside
		last.isInside(t)
		close(last.end)
		synctest.Wait()
		if got, want := guard.Stats(), (sequencer.Stats{Accepted: 2, RefusedLost: 2}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

// A request that is overtaken while the Checker is asked again is refused as
// stale, and the newer one does not wait for the Checker's answer.
func TestOvertakenAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		guard := newGuard(t, sequencer.GuardConfig{Checker: slowChecker(func(ctx context.Context, s sequencer.Sequencer) error {
			if s.Token() != 57 {
				return nil
			}
			if asked++; asked <= 2 { // before it waits
				return nil
			}
			<-ctx.Done()
			return api.Errorf(api.Cancelled, "the cell did not say in time")
		})})
		slow := begin(t.Context(), guard, 41)
		slow.isInside(t)
		next := begin(t.Context(), guard, 57)
		next.waits(t)
		close(slow.end)
		next.waits(t)
		newest := begin(t.Context(), guard, 60)
		newest.isInside(t)
		next.isRefused(t, api.BadSequencer)
		close(newest.end)
		synctest.Wait()
	})
}

// slowChecker answers in place of a session with a distant cell.
type slowChecker func(context.Context, sequencer.Sequencer) error

func (c slowChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	return c(ctx, s)
}
