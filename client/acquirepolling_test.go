package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// crowd fills the queues with requests of one session for a lock that another holds.
// end gives them up.
func crowd(t *testing.T, f *fake, c *Client, n int) (end func()) {
	t.Helper()
	holder := f.client(f.config())
	if _, err := lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive, Reason("a test")); err != nil {
		t.Fatal(err)
	}
	h := lockable(t, c, 0)
	waiting, giveUp := context.WithCancel(t.Context())
	done := make(chan struct{}, n)
	for range n {
		go func() {
			_, _ = h.Acquire(waiting, api.Exclusive)
			done <- struct{}{}
		}()
	}
	synctest.Wait()
	return func() {
		giveUp()
		for range n {
			<-done
		}
		closeClient(t, holder)
	}
}

// A request that never had a place says so, and who holds the lock.
func TestGivenUpInACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		end := crowd(t, f, c, maxSessionWaits)
		bound, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := lockable(t, c, 0).Acquire(bound, api.Exclusive)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.DeadlineExceeded || len(e.Holders) != 1 || !strings.Contains(e.Message, "192") {
			t.Errorf("%v", err)
		}
		end()
		closeClient(t, c)
	})
}

// Of the requests of one session without a place one at a time tries its lock, each
// after a pause; and one that finds a place takes it.
func TestCrowdIsThrifty(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		trying, most := 0, 0
		f.script(func(s seen) verb {
			if s.method != "TryAcquire" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				trying++
				most = max(most, trying)
				defer func() { trying-- }()
				time.Sleep(time.Millisecond)
				return next()
			}
		})
		end := crowd(t, f, c, maxSessionWaits+50)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.heard("TryAcquire")); most != 1 || n < 50 || n > 50*20 {
			t.Errorf("%d trials, %d at once", n, most)
		}
		if n := len(f.heard("Acquire")); n != 1+maxSessionWaits {
			t.Errorf("%d requests in queues, want %d", n-1, maxSessionWaits)
		}
		end()
		closeClient(t, c)
	})
}

// The sessions of a Cell share what its connection takes. However many requests for locks
// they have, there is room beside those that are in queues: for KeepAlives, or the
// sessions would end, and for what ends the waits. Who closes a session leaves its places.
func TestCrowdOfACell(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		holder := f.client(f.config())
		if _, err := lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive); err != nil {
			t.Fatal(err)
		}
		cell, clients, handles, _ := f.crowd(2)
		const places = 30 // fewer than one session may have
		cell.places = make(chan struct{}, places)
		for _, c := range clients {
			c.numbers.places = cell.places
		}
		waiting, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		for _, h := range handles {
			for range 20 {
				go func() { _, _ = h.Acquire(waiting, api.Exclusive) }()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.heard("Acquire")) - 1; n != places {
			t.Errorf("%d requests in queues, want %d", n, places)
		}
		for _, c := range clients {
			if err := c.Err(); err != nil {
				t.Error(err)
			}
			closeClient(t, c)
		}
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by nobody", len(cell.places))
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
		closeClient(t, holder)
	})
}

// A session that is lost leaves its places to the others of its Cell, also while its
// owner has not closed it: it may be long until the work that it was for has stopped.
func TestLostSessionLeavesItsPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		holder := f.client(f.config())
		if _, err := lockable(t, holder, 0).Acquire(t.Context(), api.Exclusive); err != nil {
			t.Fatal(err)
		}
		cell, clients, handles, _ := f.crowd(1)
		for range 20 {
			go func() { _, _ = handles[0].Acquire(t.Context(), api.Exclusive) }()
		}
		synctest.Wait()
		if len(cell.places) != 20 {
			t.Errorf("%d places are taken", len(cell.places))
		}
		f.cut(addresses()...)
		<-clients[0].Done()
		synctest.Wait()
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by a session that is lost", len(cell.places))
		}
		closeClient(t, clients[0])
		if len(cell.places) != 0 {
			t.Errorf("%d places are taken by nobody", len(cell.places))
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
		_ = holder.Close(t.Context())
	})
}

// A second Acquire through a handle that holds the lock is refused also where there is no
// place for another wait.
func TestOwnLockInACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		c.numbers.places = make(chan struct{})
		h := lockable(t, c, 0)
		l, err := h.TryAcquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.Acquire(ctx, api.Exclusive); !errors.Is(err, api.LockHeld) {
			t.Errorf("Acquire: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		closeClient(t, c)
	})
}
