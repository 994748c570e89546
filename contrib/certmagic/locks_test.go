package chubbystorage_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

// lostAt takes the lock of that name on a host, cuts the host off, and returns when another has the lock, and how long
// that took.
func (w *world) loseLock(host string, s, other *chubbystorage.Storage, name string) time.Duration {
	w.Helper()
	wants(w, "Lock", s.Lock(w.ctx, name), api.OK)
	w.cell.Cut(host)
	began := time.Now()
	wants(w, "Lock by another", other.Lock(w.ctx, name), api.OK)
	return time.Since(began)
}

// One at a time has a lock, on two hosts with several goroutines each; any goroutine unlocks it.
func TestLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		var all sync.WaitGroup
		var mu sync.Mutex // of the test: guards holders and total
		holders, total := 0, 0
		for _, s := range []*chubbystorage.Storage{w.host("one"), w.host("two")} {
			for range 3 {
				all.Go(func() {
					for range 5 {
						if err := s.Lock(w.ctx, "issue_cert_example.com"); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						holders, total = holders+1, total+1
						if holders != 1 {
							t.Errorf("%d have the lock", holders)
						}
						mu.Unlock()
						w.sleep(10 * time.Millisecond)
						unlocked := make(chan error)
						go func() {
							mu.Lock()
							holders--
							mu.Unlock()
							unlocked <- s.Unlock(w.ctx, "issue_cert_example.com")
						}()
						wants(t, "Unlock", <-unlocked, api.OK)
					}
				})
			}
		}
		all.Wait()
		if total != 30 {
			t.Errorf("the lock was held %d times", total)
		}
	})
}

func TestTryLock(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.host("one"), w.host("two")
		try := func(s *chubbystorage.Storage, want bool) {
			t.Helper()
			if is, err := s.TryLock(w.ctx, "l"); is != want || err != nil {
				t.Errorf("TryLock: %v %v; want %v", is, err, want)
			}
		}
		try(one, true)
		try(two, false)
		try(one, false)
		wants(t, "Unlock by another", two.Unlock(w.ctx, "l"), api.NotHeld)
		wants(t, "Unlock", one.Unlock(w.ctx, "l"), api.OK)
		wants(t, "Unlock again", one.Unlock(w.ctx, "l"), api.NotHeld)
		try(two, true)
		w.cell.Cut("two")
		w.sleep(3 * time.Second) // the lease has ended, the lock-delay has not
		try(one, false)
		w.sleep(4 * time.Second)
		try(one, true)
	})
}

// A lock that was lost is not unlocked with success; nor is the lock of that name that another goroutine has by now.
func TestLostLock(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.host("one"), w.host("two")
		if took := w.loseLock("one", one, two, "l"); took < 3*time.Second || took > 8*time.Second {
			t.Errorf("another had the lock after %v; want lease and lock-delay, 5 s", took)
		}
		w.cell.Heal("one")
		got := make(chan error)
		go func() { got <- one.Lock(w.ctx, "l") }() // another goroutine of that host
		w.sleep(time.Second)
		wants(t, "Unlock by the second", two.Unlock(w.ctx, "l"), api.OK)
		wants(t, "Lock by another goroutine", <-got, api.OK)
		if err := one.Unlock(w.ctx, "l"); !errors.Is(err, api.SessionExpired) && !errors.Is(err, api.LockLost) {
			t.Errorf("Unlock of the lock that was lost: %v", err)
		}
		if is, err := two.TryLock(w.ctx, "l"); is || err != nil {
			t.Errorf("the lock of the other goroutine is free: %v %v", is, err)
		}
		wants(t, "Unlock by the other goroutine", one.Unlock(w.ctx, "l"), api.OK)
	})
}

// A lock that an operator takes away is another's when it was unlocked, and not before; Unlock says so.
func TestTakenLock(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two, operator := w.host("one", func(c *client.Config) { c.Lease = time.Minute }), w.host("two"), w.operator()
		wants(t, "Lock", one.Lock(w.ctx, "l"), api.OK)
		wants(t, "BreakLock", operator.BreakLock(w.ctx, root+"/locks/l", "test", false), api.OK)
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		if err := two.Lock(ctx, "l"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another has the lock before the first has stopped: %v", err)
		}
		wants(t, "Unlock", one.Unlock(w.ctx, "l"), api.LockLost)
		wants(t, "Lock by another", two.Lock(w.ctx, "l"), api.OK)
	})
}

// Between two attempts CertMagic has a lock that was lost acquired again.
func TestRenewLockLease(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := w.host("one"), w.host("two")
		wants(t, "without a lock", one.RenewLockLease(w.ctx, "l", time.Hour), api.NotHeld)
		w.loseLock("one", one, two, "l")
		w.cell.Heal("one")
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		defer cancel()
		if err := one.RenewLockLease(ctx, "l", time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while another has the lock: %v", err)
		}
		wants(t, "given up", one.Unlock(w.ctx, "l"), api.NotHeld)
		wants(t, "Unlock", two.Unlock(w.ctx, "l"), api.OK)

		w.loseLock("one", one, two, "l")
		w.cell.Heal("one")
		time.AfterFunc(time.Second, func() { wants(t, "Unlock", two.Unlock(w.ctx, "l"), api.OK) })
		wants(t, "when another has unlocked it", one.RenewLockLease(w.ctx, "l", time.Hour), api.OK)
		if is, err := two.TryLock(w.ctx, "l"); is || err != nil {
			t.Errorf("it was not acquired again: %v %v", is, err)
		}
		wants(t, "while it is held", one.RenewLockLease(w.ctx, "l", time.Hour), api.OK)
		wants(t, "Unlock", one.Unlock(w.ctx, "l"), api.OK)
	})
}
