package chubbyvault

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/vault/sdk/physical"
)

func (w *world) lockWith(b *Backend, value string) physical.Lock {
	w.Helper()
	l, err := b.LockWith("core/lock", value)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) wantValue(l physical.Lock, held bool, value string) {
	w.Helper()
	if is, text, err := l.Value(); is != held || text != value || err != nil {
		w.Errorf("held: %t, value: %q, %v; want %t and %q", is, text, err, held, value)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The active node is cut off. Its channel is closed before the next one has the lock, which is after
// lease and lock-delay.
func TestTheChannelIsClosedFirst(t *testing.T) {
	const delay = 30 * time.Second // longer than what the lease takes
	inWorld(t, 3, func(w *world) {
		slow := func(cfg *Config) { cfg.LockDelay = delay }
		one, two := w.lockWith(w.backend("one", slow), "one"), w.lockWith(w.backend("two", slow), "two")
		lost, err := one.Lock(nil)
		if err != nil {
			w.Fatal(err)
		}
		w.wantValue(two, true, "one")
		w.cell.Cut("one")
		began := time.Now()
		ended := make(chan time.Time, 1)
		go func() { <-lost; ended <- time.Now() }()
		if _, err := two.Lock(nil); err != nil {
			w.Fatal(err)
		}
		if !closed(lost) {
			w.Error("the next node has the lock, and the channel of the one before is open")
		}
		at := time.Now()
		if before := at.Sub(<-ended); before < 500*time.Millisecond {
			w.Errorf("the channel was closed %v before the next node had the lock", before)
		}
		if took := at.Sub(began); took < delay {
			w.Errorf("the next node had the lock after %v; the lock-delay is %v", took, delay)
		}
		w.wantValue(two, true, "two")
		w.cell.Heal("one")
		if err := one.Unlock(); err != nil {
			w.Error(err)
		}
		w.wantValue(one, true, "two")
		if err := two.Unlock(); err != nil {
			w.Error(err)
		}
		w.wantValue(one, false, "")
	})
}

// The value is never that of a holder before: while the next has not written its own, nobody is the holder.
func TestValueIsOfTheHolder(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		b := w.backend("one")
		l := w.lockWith(b, "one").(*Lock)
		w.wantValue(l, false, "")
		if _, err := l.Lock(nil); err != nil {
			w.Fatal(err)
		}
		w.wantValue(l, true, "one")
		if err := l.Unlock(); err != nil {
			w.Fatal(err)
		}
		w.wantValue(l, false, "")
		next, err := w.operator.Acquire(w.Context(), l.path)
		if err != nil {
			w.Fatal(err)
		}
		w.wantValue(l, false, "")
		if _, err := w.operator.Put(w.Context(), l.path, []byte("next"), client.IfSequencer(next.Sequencer())); err != nil {
			w.Fatal(err)
		}
		w.wantValue(l, true, "next")
	})
}

// Lock waits for its turn, through the loss of its session, until it is stopped.
func TestLockWaits(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.lockWith(w.backend("one"), "one"), w.lockWith(w.backend("two"), "two")
		if _, err := one.Lock(make(chan struct{})); err != nil {
			w.Fatal(err)
		}
		if _, err := one.Lock(nil); !errors.Is(err, api.InvalidArgument) {
			w.Errorf("a second Lock: %v", err)
		}
		stop := make(chan struct{})
		close(stop)
		for range 2 { // the first has left nothing behind
			if lost, err := two.Lock(stop); lost != nil || err != nil {
				w.Errorf("stopped: %v, %v", lost, err)
			}
		}
		got := make(chan error, 1)
		go func() {
			_, err := two.Lock(nil)
			got <- err
		}()
		for range 4 { // as often as Keeper.Do would not try alone
			w.sleep(10 * time.Second)
			list, err := w.operator.Cell().Locks(w.Context(), root+"/locks")
			if err != nil || len(list) != 1 || len(list[0].Waiters) != 1 {
				w.Fatalf("locks: %+v, %v", list, err)
			}
			w.cell.Expire(list[0].Waiters[0].Session)
		}
		w.sleep(10 * time.Second)
		if err := one.Unlock(); err != nil {
			w.Fatal(err)
		}
		if err := <-got; err != nil {
			w.Error(err)
		}
		w.wantValue(one, true, "two")
		if err := one.Unlock(); err != nil {
			w.Errorf("Unlock of what is not held: %v", err)
		}
		w.wantValue(one, true, "two")
	})
}

// A lock that an operator takes away ends at once; after Unlock the node may have it again.
func TestLockTaken(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		b := w.backend("one")
		l := w.lockWith(b, "one").(*Lock)
		lost, err := l.Lock(nil)
		if err != nil {
			w.Fatal(err)
		}
		if err := w.operator.BreakLock(w.Context(), l.path, "a test", false); err != nil {
			w.Fatal(err)
		}
		<-lost
		if err := l.Unlock(); err != nil {
			w.Error(err)
		}
		if _, err := l.Lock(nil); err != nil {
			w.Error(err)
		}
		w.wantValue(l, true, "one")
	})
}

func TestHAEnabled(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		if !w.backend("one").HAEnabled() || w.backend("two", func(cfg *Config) { cfg.DisableHA = true }).HAEnabled() {
			w.Error("HAEnabled is not what the configuration says")
		}
	})
}
