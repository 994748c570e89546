package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// Chubby §2.4: "if the server does not wish to maintain a session with Chubby,
// [it checks] against the most recent sequencer that the server has observed".
func TestStaleSequencerIsRefused(t *testing.T) {
	guard := newGuard(t, sequencer.GuardConfig{})
	accept(t, guard, of(primary, 41))
	accept(t, guard, of(primary, 41))
	accept(t, guard, of(primary, 57))
	refuse(t, guard, of(primary, 41), api.BadSequencer, "token 41 is stale: 57 was seen for /ls/foo/svc/primary")
	accept(t, guard, of(primary, 57))
	refuse(t, guard, of(api.MustParsePath("/ls/foo/other"), 99), api.BadSequencer)
	guard.CountMissing()
	if got, want := guard.Stats(), (sequencer.Stats{Accepted: 4, RefusedStale: 1, RefusedMissing: 1, RefusedOther: 1}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// Texts of one grant with another proof, or without one, are the same to a guard that compares tokens. A Checker is asked about the
// text that came: a right one does not let a wrong one in, and the store keeps none of them.
func TestProofsAreForTheChecker(t *testing.T) {
	proved, invented, bare := of(primary, 41), of(primary, 41), of(primary, 41)
	proved.Proof, invented.Proof = sequencer.Proof{1}, sequencer.Proof{2}
	alone := newGuard(t, sequencer.GuardConfig{})
	for _, s := range []sequencer.Sequencer{bare, proved, invented, bare} {
		accept(t, alone, s)
	}
	refuse(t, alone, of(primary, 40), api.BadSequencer, "41")

	saves := 0
	store := &memory{before: func(context.Context, sequencer.Sequencer) error { saves++; return nil }}
	guard := newGuard(t, sequencer.GuardConfig{Store: store, Checker: checker(func(s sequencer.Sequencer) error {
		if s != proved {
			return api.Errorf(api.BadSequencer, "it has no proof")
		}
		return nil
	})})
	for range 2 {
		refuse(t, guard, invented, api.BadSequencer, "no proof")
		refuse(t, guard, bare, api.BadSequencer, "no proof")
		accept(t, guard, proved)
	}
	alone = newGuard(t, sequencer.GuardConfig{Store: store})
	for _, s := range []sequencer.Sequencer{bare, invented, proved} {
		accept(t, alone, s)
	}
	if store.saved[primary] != bare || saves != 1 { // each save costs a write to the disk
		t.Errorf("the store has %v, saved %d times", store.saved[primary], saves)
	}
}

func TestSequencerThatProvesNothingHere(t *testing.T) {
	shared := func(path string, token uint64) sequencer.Sequencer {
		s := of(api.MustParsePath(path), token)
		s.Mode = api.Shared
		return s
	}
	at := func(path string) sequencer.Sequencer { return of(api.MustParsePath(path), 1<<50) }
	foreign := at("/ls/foo/svc/primary")
	foreign.Cell = cellB

	exact := newGuard(t, sequencer.GuardConfig{Cell: cellA})
	for _, path := range []string{"/ls/foo/svc", "/ls/foo/svc/primary/x", "/ls/foo/svc/primary2", "/ls/bar/svc/primary", "/ls/local/svc/primary"} {
		refuse(t, exact, at(path), api.BadSequencer, "/ls/foo/svc/primary")
	}
	refuse(t, exact, foreign, api.BadSequencer, string(cellA), string(cellB))
	refuse(t, exact, shared("/ls/foo/svc/primary", 1<<50), api.BadSequencer, "shared", "exclusive")
	accept(t, exact, of(primary, 1)) // none of these raised the token

	below := newGuard(t, sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo/svc"), Mode: api.Shared, MaxLocks: 3})
	for _, path := range []string{"/ls/foo/svcs", "/ls/foo", "/ls/foo/sv", "/ls/bar/svc/a"} {
		refuse(t, below, at(path), api.BadSequencer)
	}
	accept(t, below, shared("/ls/foo/svc", 5))
	accept(t, below, shared("/ls/foo/svc/a", 3)) // each lock has its own token
	accept(t, below, of(api.MustParsePath("/ls/foo/svc/a/b"), 4))
	refuse(t, below, of(api.MustParsePath("/ls/foo/svc"), 5), api.BadSequencer, "mode")
	refuse(t, below, at("/ls/foo/svc/c"), api.QuotaExceeded, "3 locks")
	accept(t, below, shared("/ls/foo/svc", 6)) // a full table still accepts newer tokens of its locks
}

func TestFirstCellIsTrustedAndRemembered(t *testing.T) {
	name := filepath.Join(t.TempDir(), "guard")
	other := of(primary, 99)
	other.Cell = cellB

	store := openStore(t, name)
	guard := newGuard(t, sequencer.GuardConfig{Store: store})
	accept(t, guard, of(primary, 41))
	refuse(t, guard, other, api.BadSequencer, string(cellA))
	_ = store.Close()

	store = openStore(t, name)
	refuse(t, newGuard(t, sequencer.GuardConfig{Store: store}), other, api.BadSequencer, string(cellA))
	// The cell was bootstrapped again, and the operator pins its new id.
	pinned := newGuard(t, sequencer.GuardConfig{Store: store, Cell: cellB})
	other.Generation = 3
	accept(t, pinned, other)
	refuse(t, pinned, of(primary, 42), api.BadSequencer, string(cellB))
	// The guard still knows the tokens of the first cell's locks.
	refuse(t, newGuard(t, sequencer.GuardConfig{Store: store, Cell: cellA}), of(primary, 40), api.BadSequencer, "41")
	// The guard cannot know which of the two cells to accept.
	_, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Store: store, Locks: []api.Path{primary}})
	if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), "set Cell") {
		t.Errorf("two cells in the store: %v", err)
	}
}

// A guard with a stricter configuration judges anew what an earlier one let in,
// and still remembers it.
func TestStricterConfigurationAfterRestart(t *testing.T) {
	store := &memory{}
	shared := of(primary, 41)
	shared.Mode = api.Shared
	elsewhere := of(api.MustParsePath("/ls/foo/svc/other"), 43)
	lax := newGuard(t, sequencer.GuardConfig{Store: store, Prefix: api.MustParsePath("/ls/foo"), Mode: api.Shared})
	accept(t, lax, shared)
	accept(t, lax, elsewhere)
	strict := newGuard(t, sequencer.GuardConfig{Store: store})
	refuse(t, strict, shared, api.BadSequencer, "exclusive")
	refuse(t, strict, elsewhere, api.BadSequencer)
	refuse(t, strict, of(primary, 40), api.BadSequencer, "41")
	accept(t, strict, of(primary, 42))
}

func TestConfigurationFaultsAreAllNamed(t *testing.T) {
	_, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{
		Locks: []api.Path{primary, {}}, Prefix: api.MustParsePath("/ls/bar/x"), Cell: "zz", Mode: 7, MaxLocks: 1,
	})
	for _, want := range []string{"zero path", "two cells", "Cell:", "Mode", "Store", "MaxLocks"} {
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want InvalidArgument naming %q", err, want)
		}
	}
	if _, err := sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Store: &memory{}}); !errors.Is(err, api.InvalidArgument) {
		t.Errorf("no lock: %v", err)
	}
	_, err = sequencer.NewGuard(t.Context(), sequencer.GuardConfig{Store: &memory{}, Locks: []api.Path{{}, primary}})
	if err == nil || !strings.Contains(err.Error(), "zero path") || strings.Contains(err.Error(), "two cells") {
		t.Errorf("a zero path alone: %v", err)
	}
}

// A new token is let in only after it was stored, makes no other request wait
// meanwhile, and has no effect if it cannot be stored.
func TestNewTokenIsStoredFirst(t *testing.T) {
	saving, proceed := make(chan struct{}), make(chan error)
	store := &memory{before: func(_ context.Context, s sequencer.Sequencer) error {
		if s.Token() != 57 {
			return nil
		}
		saving <- struct{}{}
		return <-proceed
	}}
	guard := newGuard(t, sequencer.GuardConfig{Store: store})
	accept(t, guard, of(primary, 41))
	for _, fault := range []error{errors.New("disk full"), nil} {
		result := make(chan error)
		go func() {
			_, err := guard.Check(context.Background(), of(primary, 57).String())
			result <- err
		}()
		<-saving
		accept(t, guard, of(primary, 41)) // a slow store does not delay other requests
		select {
		case err := <-result:
			t.Fatalf("let in before it was stored: %v", err)
		default:
		}
		proceed <- fault
		err := <-result
		if fault != nil {
			if !errors.Is(err, api.Unavailable) || !errors.Is(err, fault) {
				t.Fatalf("the store failed: %v", err)
			}
			accept(t, guard, of(primary, 41))
		} else if err != nil {
			t.Fatal(err)
		}
	}
	refuse(t, guard, of(primary, 41), api.BadSequencer, "57")
}

// checker answers in place of a session.
type checker func(sequencer.Sequencer) error

func (c checker) CheckSequencer(_ context.Context, s sequencer.Sequencer) error { return c(s) }

func TestCheckerDecidesBesides(t *testing.T) {
	valid := uint64(41)
	lost := &api.Error{Code: api.BadSequencer, Message: "the lock is not held in that generation"}
	guard := newGuard(t, sequencer.GuardConfig{Checker: checker(func(s sequencer.Sequencer) error {
		if s.Token() != valid {
			return lost
		}
		return nil
	})})
	accept(t, guard, of(primary, 41))
	// An invented token is refused, and locks out no holder.
	refuse(t, guard, of(primary, 1<<50), api.BadSequencer, "not held")
	accept(t, guard, of(primary, 41))
	// A lost lock is refused although no newer token has arrived.
	valid = 57
	refuse(t, guard, of(primary, 41), api.BadSequencer, "not held")
	accept(t, guard, of(primary, 57))
	// The cell's answer does not lower the newest token.
	valid = 41
	refuse(t, guard, of(primary, 41), api.BadSequencer, "57 was seen")
	if got, want := guard.Stats(), (sequencer.Stats{Accepted: 3, RefusedStale: 1, RefusedLost: 2}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// A refused caller gets both tokens, in words and in fields.
func TestRefusalsCarryBothTokens(t *testing.T) {
	guard := newGuard(t, sequencer.GuardConfig{Checker: checker(func(s sequencer.Sequencer) error {
		if s.Token() > 57 {
			return fmt.Errorf("asked: %w", &api.Error{Code: api.BadSequencer, Message: "not held"})
		}
		return nil
	})})
	elsewhere := of(api.MustParsePath("/ls/foo/other"), 99)
	for _, step := range []struct {
		seq           sequencer.Sequencer
		token, newest uint64
		words         []string
	}{
		{seq: of(primary, 60), token: 60, words: []string{"token 60 is refused", "none was let in", "not held"}},
		{seq: of(primary, 57)},
		{seq: of(primary, 41), token: 41, newest: 57, words: []string{"token 41", "57"}},
		{seq: of(primary, 60), token: 60, newest: 57, words: []string{"token 60 is refused", "57 is the newest", "not held"}},
		{seq: elsewhere, token: 99, words: []string{"not protected"}},
	} {
		_, err := guard.Check(t.Context(), step.seq.String())
		if step.token == 0 {
			must(t, err)
			continue
		}
		var r *sequencer.Refusal
		if !errors.As(err, &r) || r.Token != step.token || r.Newest != step.newest || !errors.Is(err, api.BadSequencer) {
			t.Errorf("%v: %v, %+v", step.seq, err, r)
		}
		for _, word := range step.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v: %v lacks %q", step.seq, err, word)
			}
		}
	}
	// A caller's own store may know a newer token, and report it, or not.
	_, other := guard.Check(t.Context(), elsewhere.String())
	for told, newest := range map[error]uint64{sequencer.Stale(of(primary, 41), 57): 57, api.Errorf(api.BadSequencer, "another server saw it"): 0, other: 0} {
		guard = newGuard(t, sequencer.GuardConfig{Store: &memory{before: func(context.Context, sequencer.Sequencer) error { return told }}})
		_, err := guard.Check(t.Context(), of(primary, 41).String())
		var r *sequencer.Refusal
		if !errors.As(err, &r) || r.Token != 41 || r.Newest != newest || r.Error() != told.Error() || guard.Stats() != (sequencer.Stats{RefusedStale: 1}) {
			t.Errorf("%v, %+v, %+v", err, r, guard.Stats())
		}
	}
}

// Of two new tokens that arrive together, the lower one waits while the higher
// is stored, and is then stale, even if the store would accept it.
func TestTokensRiseInOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed, saves := make(chan struct{}), 0
		store := &memory{before: func(context.Context, sequencer.Sequencer) error { <-proceed; saves++; return nil }}
		guard := newGuard(t, sequencer.GuardConfig{Store: store})
		ask := func(ctx context.Context, token uint64) chan error {
			result := make(chan error, 1)
			go func() {
				_, err := guard.Check(ctx, of(primary, token).String())
				result <- err
			}()
			synctest.Wait()
			return result
		}
		impatient, giveUp := context.WithCancel(t.Context())
		higher, lower, same, gone := ask(t.Context(), 60), ask(t.Context(), 57), ask(t.Context(), 60), ask(impatient, 61)
		giveUp()
		if err := <-gone; !errors.Is(err, api.Cancelled) {
			t.Errorf("the request that gave up: %v", err)
		}
		close(proceed)
		if err := errors.Join(<-higher, <-same); err != nil {
			t.Errorf("token 60: %v", err)
		}
		if err := <-lower; !errors.Is(err, api.BadSequencer) {
			t.Errorf("token 57 after 60: %v", err)
		}
		if stored := store.saved[primary]; stored.Token() != 60 || saves != 1 {
			t.Errorf("token %d is stored, and %d were saved", stored.Token(), saves)
		}
	})
}

// A request whose check with the cell takes long is stale if a newer one was
// let in meanwhile.
func TestOvertakenWhileChecking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, proceed := false, make(chan struct{})
		guard := newGuard(t, sequencer.GuardConfig{Checker: checker(func(s sequencer.Sequencer) error {
			if s.Token() == 41 && slow {
				<-proceed
			}
			return nil
		})})
		accept(t, guard, of(primary, 41))
		slow = true
		result := make(chan error, 1)
		go func() {
			_, err := guard.Check(t.Context(), of(primary, 41).String())
			result <- err
		}()
		synctest.Wait()
		accept(t, guard, of(primary, 57))
		close(proceed)
		if err := <-result; !errors.Is(err, api.BadSequencer) {
			t.Errorf("token 41 after 57: %v", err)
		}
	})
}

// With concurrent callers and restarts of the server, no request is let in with
// a token below one that was let in before the request arrived.
func TestNeverLowerThanBefore(t *testing.T) {
	const restarts, callers, requests, locks = 8, 8, 60, 3
	name := filepath.Join(t.TempDir(), "guard")
	var floors [locks]atomic.Uint64
	var tokens atomic.Uint64
	for range restarts {
		store := openStore(t, name)
		guard := newGuard(t, sequencer.GuardConfig{Store: store, Prefix: api.MustParsePath("/ls/foo/svc")})
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for i := range requests {
					which := (caller + i) % locks
					path := api.MustParsePath(fmt.Sprintf("/ls/foo/svc/%d", which))
					// Every fifth request brings a new token, the others a recent one.
					token := tokens.Load() - uint64(i*7%11)
					if i%5 == 0 || token == 0 || token > 1<<40 {
						token = tokens.Add(1)
					}
					floor := floors[which].Load()
					if _, err := guard.Check(t.Context(), of(path, token).String()); err != nil {
						if !errors.Is(err, api.BadSequencer) {
							t.Error(err)
						}
						continue
					}
					if token < floor {
						t.Errorf("token %d was let in after %d of lock %d", token, floor, which)
					}
					for old := floors[which].Load(); old < token && !floors[which].CompareAndSwap(old, token); {
						old = floors[which].Load()
					}
				}
			})
		}
		group.Wait()
		if stats := guard.Stats(); stats.Accepted == 0 || stats.RefusedStale == 0 ||
			stats.Accepted+stats.RefusedStale+stats.RefusedOther != callers*requests {
			t.Errorf("%+v of %d requests: the test proves nothing, or a request is not counted", stats, callers*requests)
		}
		_ = store.Close()
	}
}

// A guard knows no default cell: to a sequencer of a lock that /ls/local/... names elsewhere it says what to configure.
func TestGuardOfLocal(t *testing.T) {
	local := ok(primary.Name().In(api.LocalCell))(t)
	guard := newGuard(t, sequencer.GuardConfig{Locks: []api.Path{local}})
	refuse(t, guard, of(primary, 5), api.BadSequencer, "a guard takes local for the name of a cell", "configure it with /ls/foo/")
	refuse(t, guard, of(api.MustParsePath("/ls/foo/other"), 5), api.BadSequencer, "not protected by that lock")
	accept(t, guard, of(local, 5))
}
