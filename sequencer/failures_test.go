package sequencer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// lender is a Store that returns what a test puts into it.
type lender struct {
	memory
	lent []sequencer.Sequencer
	err  error
}

func (l *lender) Load(context.Context) ([]sequencer.Sequencer, error) { return l.lent, l.err }

// A guard that does not know which tokens it has seen would let every stale holder in again. So it does not start when its store
// cannot be read, or returns what no guard has saved.
func TestGuardDoesNotStartWithoutItsTokens(t *testing.T) {
	unnamed := of(primary, 41)
	unnamed.Cell = ""
	for name, test := range map[string]struct {
		store *lender
		says  string
	}{
		"a store that fails":                 {&lender{err: errors.New("input/output error")}, "input/output error"},
		"a store that fails after some":      {&lender{lent: []sequencer.Sequencer{of(primary, 41)}, err: errors.New("short read")}, "short read"},
		"a sequencer of no cell":             {&lender{lent: []sequencer.Sequencer{unnamed}}, "no sequencer"},
		"a sequencer of nothing behind some": {&lender{lent: []sequencer.Sequencer{of(primary, 41), {}}}, "no sequencer"},
	} {
		guard, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Store: test.store, Locks: []api.Path{primary}})
		if guard != nil || err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: NewGuard returns %v, %v; want an error that says %q", name, guard, err, test.says)
		}
	}
}

// While the cell cannot be reached, nobody knows whether a lock is still held: a Checker that does not know lets nothing in, neither
// a new token nor a known one, and the next answer counts again.
func TestCheckerThatDoesNotKnowLetsNothingIn(t *testing.T) {
	var answer error
	store := &memory{}
	guard := newGuard(t, sequencer.GuardConfig{Store: store, Checker: checker(func(sequencer.Sequencer) error { return answer })})
	unreachable := api.Errorf(api.Unavailable, "no replica answers")
	serve := func() error {
		return guard.Do(t.Context(), of(primary, 41).String(), func(context.Context) error {
			t.Error("the request was served")
			return nil
		})
	}
	for _, known := range []bool{false, true} {
		answer = unreachable
		refuse(t, guard, of(primary, 41), api.Unavailable, "no replica answers")
		if err := serve(); !errors.Is(err, api.Unavailable) {
			t.Errorf("Do with a known token %v: %v, want Unavailable", known, err)
		}
		if _, saved := store.saved[primary]; saved != known {
			t.Errorf("the store has the token: %v, want %v", saved, known)
		}
		answer = nil
		accept(t, guard, of(primary, 41))
	}
	if got, want := guard.Stats(), (sequencer.Stats{Accepted: 2, RefusedOther: 4}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// A request whose time runs out while its token is stored is told that, not that the store is broken.
func TestTimeRunsOutWhileSaving(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	guard := newGuard(t, sequencer.GuardConfig{Store: &memory{before: func(ctx context.Context, _ sequencer.Sequencer) error {
		cancel()
		return ctx.Err()
	}}})
	if _, err := guard.Check(ctx, of(primary, 41).String()); api.CodeOf(err) != api.ContextCode(context.Canceled) {
		t.Errorf("%v, want that its time ran out", err)
	}
}

// A guard says which locks it is for.
func TestWordsOfGuards(t *testing.T) {
	other := api.MustParsePath("/ls/foo/other")
	for others, locks := range map[string][]api.Path{"": {primary}, " and 1 others": {primary, api.MustParsePath("/ls/foo/b")}} {
		_, err := newGuard(t, sequencer.GuardConfig{Locks: locks}).Check(t.Context(), of(other, 41).String())
		if err == nil || !strings.HasSuffix(strings.TrimSuffix(err.Error(), " (BadSequencer)"), primary.String()+others) {
			t.Errorf("a guard of %v: %v", locks, err)
		}
	}
}

// A guard goes by what it has saved of its cell, also if it shares its store with those of others, which does not compare.
func TestPinnedGuardRemembers(t *testing.T) {
	other, elsewhere := of(primary, 99), of(api.MustParsePath("/ls/bar/svc/primary"), 99)
	other.Cell, elsewhere.Cell = cellB, cellB
	accept(t, newGuard(t, sequencer.GuardConfig{Store: &lender{lent: []sequencer.Sequencer{elsewhere}}}), of(primary, 41)) // of another cell
	guard := newGuard(t, sequencer.GuardConfig{Cell: cellA, Store: &lender{lent: []sequencer.Sequencer{other, of(primary, 40), of(primary, 41), of(primary, 39)}}})
	refuse(t, guard, of(primary, 40), api.BadSequencer, "41 was seen")
	accept(t, guard, of(primary, 41))
	if _, err := guard.Check(t.Context(), "41"); !errors.Is(err, api.BadSequencer) || !strings.Contains(err.Error(), "not a sequencer") {
		t.Errorf("a text that is no sequencer: %v", err)
	}
}

// Code that still watches the context of a request that has ended notices before a newer token enters.
func TestContextEndsWithItsSection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, sequencer.GuardConfig{})
		older := begin(t.Context(), guard, 41)
		ctx := older.isInside(t)
		if ctx.Err() != nil {
			t.Errorf("inside: %v", ctx.Err())
		}
		close(older.end)
		if err := <-older.result; err != nil || ctx.Err() == nil {
			t.Errorf("Do returned %v, and the context has ended: %v", err, ctx.Err())
		}
		newer := begin(t.Context(), guard, 57)
		if err := newer.isInside(t).Err(); err != nil {
			t.Errorf("the next: %v", err)
		}
		close(newer.end)
		<-newer.result
	})
}

// What the caller does with its list of locks afterwards does not open the guard to other locks.
func TestGuardKeepsItsOwnList(t *testing.T) {
	other := api.MustParsePath("/ls/foo/svc/other")
	locks := []api.Path{primary}
	guard := newGuard(t, sequencer.GuardConfig{Locks: locks, MaxLocks: 1}) // as many as there are is enough
	locks[0] = other
	refuse(t, guard, of(other, 41), api.BadSequencer)
	accept(t, guard, of(primary, 41))
}

// A value that could not be read again is not saved: the store would be damaged at the next start.
func TestFileStoreSavesNoNonsense(t *testing.T) {
	store := openStore(t, t.TempDir()+"/guard")
	if err := store.Save(t.Context(), sequencer.Sequencer{Path: primary}); err == nil {
		t.Error("a sequencer without a cell was saved")
	}
	checkStored(t, store)
}

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
