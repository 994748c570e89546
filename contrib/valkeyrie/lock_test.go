package chubbykv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	chubbykv "github.com/chubbylock/chubby/contrib/valkeyrie"
	"github.com/kvtools/valkeyrie/store"
)

func (w *world) lock(s *chubbykv.Store, key string, o *store.LockOptions) *chubbykv.Lock {
	w.Helper()
	l, err := s.NewLock(w.Context(), key, o)
	if err != nil {
		w.Fatal(err)
	}
	return l.(*chubbykv.Lock)
}

// acquire locks within a limit.
func (w *world) acquire(l *chubbykv.Lock, limit time.Duration) (<-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	return l.Lock(ctx)
}

func isLost(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

// Locks of a key exclude each other, write their values, and have them go as they are told.
func TestLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		first := w.lock(s, "dir/k", &store.LockOptions{Value: []byte("first"), DeleteOnUnlock: true})
		lost, err := w.acquire(first, time.Second)
		if err != nil || isLost(lost) {
			t.Fatal(err)
		}
		w.want(other, "dir/k", "first")
		before, ok := first.Sequencer()
		if !ok {
			t.Error("it has no sequencer")
		}
		for name, l := range map[string]*chubbykv.Lock{"another store": w.lock(other, "dir/k", nil), "the same store": w.lock(s, "dir/k", nil)} {
			if _, err := w.acquire(l, time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if err := l.Unlock(t.Context()); !errors.Is(err, store.ErrCannotLock) {
				t.Errorf("%s, unlock of what is not held: %v", name, err)
			}
		}
		if _, err := w.acquire(first, time.Second); !errors.Is(err, store.ErrCannotLock) {
			t.Errorf("lock again: %v", err)
		}
		second := w.lock(other, "dir/k", &store.LockOptions{Value: []byte("second")})
		has := make(chan error)
		go func() { _, err := w.acquire(second, time.Minute); has <- err }()
		w.sleep(time.Second)
		if err := first.Unlock(t.Context()); err != nil || !isLost(lost) {
			t.Error(err)
		}
		if err := <-has; err != nil {
			t.Error(err)
		}
		if after, ok := second.Sequencer(); !ok || after.Token() <= before.Token() {
			t.Errorf("token %d, and then %d", before.Token(), after.Token())
		}
		if _, ok := first.Sequencer(); ok {
			t.Error("it has a sequencer after Unlock")
		}
		w.want(s, "dir/k", "second")
		if err := second.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		w.want(s, "dir/k", "second")
		w.wantNodes("locks", "dir", "dir/_k")
	})
}

// Unlock deletes no value that others have written since.
func TestUnlockLeavesWhatOthersWrote(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		l := w.lock(s, "k", &store.LockOptions{Value: []byte("v"), DeleteOnUnlock: true})
		if _, err := w.acquire(l, time.Second); err != nil {
			t.Fatal(err)
		}
		w.put(other, "k", "w", nil)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		w.want(s, "k", "w")
	})
}

// The channel of a holder that is cut off is closed before another has the lock, and its value is gone with it;
// Unlock says that it was lost.
func TestLockLost(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s := w.store("one", func(cfg *chubbykv.Config) { cfg.Client.Lease = 3 * time.Second })
		other := w.store("two")
		l := w.lock(s, "k", &store.LockOptions{Value: []byte("v"), DeleteOnUnlock: true})
		lost, err := w.acquire(l, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		w.cell.Cut("one")
		if _, err := w.acquire(w.lock(other, "k", nil), time.Minute); err != nil {
			t.Fatal(err)
		}
		if !isLost(lost) {
			t.Error("another has the lock, and the channel is open")
		}
		w.sleep(3 * time.Second) // a cell deletes ephemeral files after it has freed the locks
		w.want(other, "k", "")
		w.cell.Heal("one")
		if err := l.Unlock(t.Context()); !errors.Is(err, api.LockLost) && !errors.Is(err, api.SessionExpired) {
			t.Errorf("unlock: %v", err)
		}
		waits := w.lock(s, "k", nil)
		if _, err := w.acquire(waits, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is the other's: %v", err)
		}
	})
}

// A lock whose channel was closed in time, and that the cell has not given to another, was lost all the same.
func TestUnlockSaysThatItWasLost(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		l := w.lock(w.store("one"), "k", nil)
		lost, err := w.acquire(l, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		w.cell.Cut("one")
		<-lost
		w.cell.Heal("one")
		if err := l.Unlock(t.Context()); !errors.Is(err, api.LockLost) && !errors.Is(err, api.SessionExpired) {
			t.Errorf("unlock: %v", err)
		}
		if _, err := w.acquire(l, time.Minute); err != nil {
			t.Errorf("lock again: %v", err)
		}
	})
}

// A wait goes on when its session is lost; and a lock that an operator takes away is lost at once.
func TestLockWaitsOn(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		first := w.lock(other, "k", nil)
		lost, err := w.acquire(first, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		has := make(chan error)
		go func() { _, err := w.acquire(w.lock(s, "k", nil), time.Minute); has <- err }()
		for range 3 { // client.Keeper has another session once
			w.sleep(5 * time.Second)
			w.endSession()
		}
		w.sleep(5 * time.Second)
		if err := w.operator.BreakLock(t.Context(), root+"/locks/_k", "a test", true); err != nil {
			t.Fatal(err)
		}
		<-lost
		if err := <-has; err != nil {
			t.Error(err)
		}
		if err := first.Unlock(t.Context()); !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "a test") {
			t.Errorf("unlock: %v", err)
		}
	})
}

// A lock whose renewal is stopped is released after its TTL, and its channel is closed before.
func TestRenewLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		s, other := w.store("one"), w.store("two")
		renew := make(chan struct{})
		lost, err := w.acquire(w.lock(s, "k", &store.LockOptions{TTL: 6 * time.Second, RenewLock: renew}), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(30 * time.Second)
		if isLost(lost) {
			t.Error("it was not renewed")
		}
		close(renew)
		began := time.Now()
		closed := make(chan time.Duration, 1)
		go func() { <-lost; closed <- time.Since(began) }()
		if _, err := w.acquire(w.lock(other, "k", nil), time.Minute); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 6*time.Second || took > 8*time.Second {
			t.Errorf("another had it after %v", took)
		}
		if took := <-closed; took < 5*time.Second || took >= 6*time.Second {
			t.Errorf("the channel was closed after %v", took)
		}
	})
}
