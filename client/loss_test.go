package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// held returns a client whose lock is about to be taken away, a second after it
// was granted.
func (f *fake) held(cfg Config) (*Client, *Lock) {
	f.t.Helper()
	c := f.client(cfg)
	l := ok(lockable(f.t, c, time.Minute).Acquire(f.t.Context(), api.Exclusive))(f.t)
	time.Sleep(time.Second)
	return c, l
}

// keepAlives returns what the KeepAlives since a moment acknowledged.
func (f *fake) keepAlives(since time.Duration) (acknowledged []uint64) {
	for _, k := range f.heard("KeepAlive") {
		if k.at > since {
			acknowledged = append(acknowledged, k.request.(*chubbypb.KeepAliveRequest).GetAcknowledged())
		}
	}
	return acknowledged
}

// A lock that is broken ends at once, with the reason; but it is free for others
// when its owner says that the work has stopped, and not before: until then the
// loss is not acknowledged, nor is the master asked all the time (decision 10).
func TestLockTaken(t *testing.T) {
	for name, letGo := range map[string]func(t *testing.T, l *Lock){
		"Release": func(t *testing.T, l *Lock) {
			if err := l.Release(t.Context()); !errors.Is(err, api.LockLost) || !errors.Is(err, LockTaken) {
				t.Errorf("Release: %v", err)
			}
		},
		"Handle.Close": func(t *testing.T, l *Lock) {
			wants(t, "Close", l.handle.Close(t.Context()), nil)
		},
		"Client.Close": func(t *testing.T, l *Lock) { closeClient(t, l.handle.client) },
	} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
			cfg, r := f.recorded()
			_, l := f.held(cfg)
			began := time.Since(f.began)
			f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
			<-l.Context().Done()
			if d := time.Since(f.began) - began; d > 10*time.Millisecond || !errors.Is(l.Err(), LockTaken) || l.ExclusiveUntil() != 0 {
				t.Errorf("after %v: %v, %v", d, l.Err(), l.ExclusiveUntil())
			}
			time.Sleep(8 * time.Second) // the lease still runs
			if s := f.state(); s.acked != 0 || s.held == 0 || len(f.keepAlives(began)) > 2 {
				t.Errorf("before the owner has let go: acknowledged %d, held %d, KeepAlives %v", s.acked, s.held, f.keepAlives(began))
			}
			letGo(t, l)
			time.Sleep(100 * time.Millisecond)
			if f.state().held != 0 {
				t.Errorf("the lock is not free although its owner has let go")
			}
			if name != "Client.Close" {
				if f.state().acked != 1 || len(r.states()) != 0 {
					t.Errorf("acknowledged %d, states %v", f.state().acked, r.states())
				}
				time.Sleep(time.Minute)
				if len(r.states()) != 0 {
					t.Errorf("the session did not go on: %v", r.states())
				}
			}
			if name == "Release" && len(f.heard("Release")) != 1 {
				t.Errorf("%d calls of Release", len(f.heard("Release")))
			}
		})
	}
}

// The acknowledgement alone frees the lock, should the call of Release never
// arrive.
func TestLossIsAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		time.Sleep(time.Second)
		f.on("Release", hang)
		wants(t, "Release", l.Release(bounded(t, time.Second)), api.LockLost)
		if s := f.state(); s.acked != 1 || s.held != 0 {
			t.Errorf("acknowledged %d, held %d", s.acked, s.held)
		}
	})
}

// An owner that never lets go costs the session, and nobody else anything: the
// loss is never acknowledged, so the master waits for the end of the lease.
func TestLockTakenFromTheDeaf(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := watching(t, c)
		s := f.only()
		f.tell(s, uint64(h.id), modified(1)) // is acknowledged
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		f.tell(s, uint64(h.id), modified(2)) // is told, and not acknowledged
		f.mu.Lock()
		end := s.end
		f.mu.Unlock()
		began := time.Since(f.began)
		<-c.Done()
		if now := time.Now(); now.Before(end) || now.After(end.Add(2*time.Second)) || !errors.Is(c.Err(), EndedByCell) {
			t.Errorf("ended at %v by %v; its lease at the master ended at %v", now, c.Err(), end)
		}
		asked := f.keepAlives(began)
		for _, acknowledged := range asked {
			if acknowledged > 1 {
				t.Errorf("acknowledged %v", asked)
			}
		}
		if n := len(asked); n < 2 || n > 4 {
			t.Errorf("%d KeepAlives", n)
		}
		f.mu.Lock()
		if len(f.evicted) != 1 || f.began.Add(f.evicted[0]).Before(end) {
			t.Errorf("freed at %v; the lease ended at %v", f.evicted, end.Sub(f.began))
		}
		f.mu.Unlock()
		if e, err := h.Next(t.Context()); err != nil || e.Generation != 1 {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err := h.Next(t.Context()); err != nil || e.Generation != 2 {
			t.Errorf("%+v, %v", e, err)
		}
		wants(t, "Release", l.Release(t.Context()), api.LockLost)
	})
}

// While a loss is held back, and even if the master is slow to end the session,
// KeepAlives are parked; and what the cell tells to be dropped is received at
// once, without the loss.
func TestHeldBackIsParked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		s := f.only()
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		time.Sleep(time.Second)
		f.locked(func() { s.end = s.end.Add(time.Hour) })
		time.Sleep(c.Left() + time.Second)
		began := time.Since(f.began)
		time.Sleep(30 * time.Second)
		if n := len(f.keepAlives(began)); n > 5 || f.state().acked != 0 {
			t.Errorf("%d KeepAlives in 30 s, acknowledged %d", n, f.state().acked)
		}
		f.post(s, chubbypb.EventKind_EVENT_KIND_CACHE_INVALIDATION)
		time.Sleep(100 * time.Millisecond)
		f.mu.Lock()
		if s.received != 2 || s.acked != 0 {
			t.Errorf("received %d and acknowledged %d, want 2 and 0", s.received, s.acked)
		}
		f.mu.Unlock()
		done := make(chan error)
		go func() { done <- l.Release(t.Context()) }()
		wants(t, "Release", <-done, api.LockLost)
		time.Sleep(minPause)
		synctest.Wait()
		if s := f.state(); s.acked != 2 || s.held != 0 || c.State().String() != "safe" {
			t.Errorf("acknowledged %d, held %d, state %v", s.acked, s.held, c.State())
		}
	})
}

// Of two locks that were taken away, the first to be let go is free first, if
// its loss was told first; that of a lock which nobody holds is acknowledged at
// once.
func TestLossesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, first := f.held(f.config())
		f.mu.Lock()
		f.holder = nil // another lock, for all that the fake knows
		f.mu.Unlock()
		second := acquired(t, lockable(t, c, 0))
		s, free := f.only(), lockable(t, c, 0)
		lost := func(h *Handle, generation api.Generation) {
			f.tell(s, uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_LOST, Generation: uint64(generation)})
			time.Sleep(100 * time.Millisecond)
		}
		acked := func(want uint64) {
			t.Helper()
			time.Sleep(minPause)
			synctest.Wait()
			if got := f.state().acked; got != want {
				t.Errorf("acknowledged %d, want %d", got, want)
			}
		}
		lost(free, 7)
		acked(1)
		lost(first.handle, first.seq.Generation-1) // of the one before
		acked(2)
		f.mu.Lock()
		for _, l := range []*Lock{first, second} {
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_LOST, Handle: uint64(l.handle.id), Generation: uint64(l.seq.Generation)})
		}
		f.mu.Unlock()
		<-second.Context().Done()
		acked(2)
		_ = first.Release(t.Context())
		acked(3)
		time.Sleep(time.Second)
		acked(3)
		_ = second.Release(t.Context())
		acked(4)
	})
}

// A fail-over while the loss is held back: the next master tells of it again,
// and waits as well. Calls hear of that master, and are not held up until the
// lease is over.
func TestLossAcrossFailOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := watching(t, c)
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		<-l.Context().Done()
		time.Sleep(time.Second)
		f.elect("b:1")
		began := time.Now()
		if _, err := h.Stat(t.Context()); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("a call after the fail-over: %v after %v", err, time.Since(began))
		}
		time.Sleep(5 * time.Second)
		if s := f.state(); s.acked != 1 || s.held == 0 || c.Epoch() != 6 {
			t.Errorf("acknowledged %d, held %d, epoch %d", s.acked, s.held, c.Epoch())
		}
		_ = l.Release(t.Context())
		time.Sleep(minPause)
		synctest.Wait()
		if s := f.state(); s.acked != 2 || s.held != 0 {
			t.Errorf("acknowledged %d, held %d", s.acked, s.held)
		}
	})
}

// A refusal that the log does not stand behind says nothing of an earlier attempt,
// whose answer was lost: the request is withdrawn, and a lock that it got given
// back. One that it does is the outcome.
func TestRefusalAfterALostAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		refusal *api.Error
		done    bool // the attempt before
		want    api.Code
		cancels int
	}{
		"done, and refused by the master alone":     {api.Errorf(api.QuotaExceeded, "too many wait"), true, api.Uncertain, 1},
		"not done, and refused by the master alone": {api.Errorf(api.LockHeld, "others come first"), false, api.Uncertain, 1},
		"refused by the log":                        {&api.Error{Code: api.QuotaExceeded, Message: "too many wait", Final: true}, false, api.QuotaExceeded, 0},
	} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			first := verb(lose)
			if !test.done {
				first = fail(api.Errorf(api.Uncertain, "the answer was lost"))
			}
			f.inTurn("TryAcquire", first, fail(test.refusal))
			if _, err := h.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, test.want) {
				t.Errorf("TryAcquire: %v; want %v", err, test.want)
			}
			synctest.Wait()
			if n := len(f.heard("Cancel")); n != test.cancels {
				t.Errorf("%d requests were withdrawn; want %d", n, test.cancels)
			}
			if s := f.state(); s.held > 0 {
				t.Errorf("the lock is held, with token %d", s.held)
			}
			settled(t, c)
		})
	}
}
