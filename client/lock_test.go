package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

func lockable(t *testing.T, c *Client, delay time.Duration) *Handle {
	t.Helper()
	return opened(t, c, "/ls/foo/x", OpenOptions{Write: true, Create: File, LockDelay: delay})
}

// A master that hangs between a grant and the end of its stream does not keep the lock from
// its holder.
func TestAcquireAnsweredByAStreamThatDoesNotEnd(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.locked(func() { f.lingers = true })
		began := time.Now()
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if took := time.Since(began); err != nil || took > streamEndTime {
			t.Fatalf("Acquire took %v and returned %v", took, err)
		}
		noError(t, l.Release(t.Context()))
	})
}

func TestAcquireRelease(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		ctx, cancel := context.WithCancel(t.Context())
		l := ok(h.Acquire(ctx, api.Exclusive, Reason("a test")))(t)
		cancel() // the lock does not depend on the context of Acquire
		if l.Err() != nil || l.Token() != 101 || l.Mode() != api.Exclusive || l.Sequencer().Path.String() != "/ls/foo/x" {
			t.Errorf("%v, token %d, %+v", l.Err(), l.Token(), l.Sequencer())
		}
		if left := l.ExclusiveUntil(); left < 11*time.Second || left > localLease {
			t.Errorf("exclusive for %v", left)
		}
		wants(t, "CheckSequencer", c.CheckSequencer(t.Context(), l.Sequencer().String()), nil)
		wants(t, "Release", l.Release(t.Context()), nil)
		if !errors.Is(l.Err(), LockReleased) || !errors.Is(context.Cause(l.Context()), LockReleased) || l.ExclusiveUntil() != 0 {
			t.Errorf("after Release: %v, %v", l.Err(), l.ExclusiveUntil())
		}
		wants(t, "CheckSequencer", c.Cell().Checker().CheckSequencer(t.Context(), l.Sequencer()), api.BadSequencer)
		l2, err := h.TryAcquire(t.Context(), api.Exclusive)
		if err != nil || l2.Token() <= l.Token() {
			t.Fatalf("again: %v", err)
		}
		if err := l.Release(t.Context()); err != nil || f.state().held != l2.Token() {
			t.Errorf("a late Release touched the newer lock: %v", err) // etcd #22082
		}
		if err := h.Close(t.Context()); err != nil || f.state().held != 0 || !errors.Is(l2.Err(), LockReleased) {
			t.Errorf("Close: %v, held %d, %v", err, f.state().held, l2.Err())
		}
		wants(t, "after Close", second(h.Acquire(t.Context(), api.Shared)), api.HandleClosed)
		wants(t, "a second Close", h.Close(t.Context()), nil)
	})
}

// A waiter whose stream breaks, also by a fail-over, asks again with the same
// number and its ticket, and so keeps its place.
func TestAcquireKeepsItsPlace(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.locked(func() { f.holder = &fakeHold{gen: 50, session: &fakeSession{id: 77}} })
		var queued []string
		got := make(chan *Lock)
		go func() {
			l, err := h.Acquire(t.Context(), api.Exclusive, OnQueued(func(q Queued) {
				queued = append(queued, fmt.Sprintln(q.Place, q.Waiting, q.Holders[0].Principal, q.Delayed))
			}))
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		f.cut("a:1") // the connection breaks
		f.heal()
		time.Sleep(time.Second)
		f.elect("b:1") // the master fails over
		time.Sleep(3 * time.Second)
		f.at("b:1", hang) // the master hangs, and another takes over
		f.cut("b:1")
		f.elect("c:1")
		time.Sleep(3 * time.Second)
		f.locked(func() { f.holder = nil })
		if l := <-got; l == nil || l.Err() != nil {
			t.Errorf("not granted: %v", l)
		}
		calls := f.heard("Acquire")
		if len(calls) < 4 {
			t.Errorf("%d attempts", len(calls))
		}
		for i, s := range calls {
			ticket := string(s.request.(*chubbypb.AcquireRequest).GetTicket())
			if s.number != calls[0].number || i > 0 && ticket != "ticket 1" {
				t.Errorf("attempt %d has number %d and %q", i, s.number, ticket)
			}
		}
		if len(queued) == 0 || queued[0] != "1 1 somebody 0s\n" {
			t.Errorf("OnQueued was told %v", queued)
		}
	})
}

// One who gives up waiting does not hold the lock, also if it was granted just
// then, and learns who holds it.
func TestAcquireGivesUp(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.locked(func() { f.holder = &fakeHold{gen: 50, session: &fakeSession{id: 77}} })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := h.Acquire(ctx, api.Exclusive)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) || len(e.Holders) != 1 {
			t.Errorf("%+v", err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if n := len(f.heard("Cancel")); n != 1 {
			t.Errorf("%d cancels", n)
		}
		_, err = h.TryAcquire(t.Context(), api.Exclusive)
		if !errors.As(err, &e) || e.Code != api.LockHeld || e.Holders[0].Session != 77 {
			t.Errorf("TryAcquire: %v", err)
		}

		f.on("Acquire", mute) // it is granted, and nobody hears of it
		f.locked(func() { f.holder = nil })
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.on("TryAcquire", mute)
		if _, err := h.TryAcquire(ctx, api.Exclusive); !errors.Is(err, api.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if held := f.state().held; held != 0 || len(f.heard("Release")) != 1 {
			t.Errorf("held %d, %d releases", held, len(f.heard("Release")))
		}
		settled(t, c)
	})
}

func (f *fake) takeLock(reason chubbypb.EndReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tellLoss(f.holder, reason)
}

// The event that a lock was lost may overtake the answer that granted it.
func TestLossOvertakesGrant(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.on("TryAcquire", then(func() {
			f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
			time.Sleep(2 * time.Second)
		}))
		if l, err := h.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockLost) {
			t.Errorf("%v, %v", l, err)
		}
	})
}

// After a fail-over events may be missing, so the client asks about its locks.
func TestLockLostDuringFailOver(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, time.Minute)
		l := acquired(t, h)
		f.elect("b:1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if l.Err() != nil || len(f.heard("GetSequencer")) == 0 {
			t.Errorf("a lock that is still held: %v; asked %d times", l.Err(), len(f.heard("GetSequencer")))
		}
		f.locked(func() { f.holder = nil })
		f.elect("c:1")
		<-l.Context().Done()
		if !errors.Is(l.Err(), LockTaken) {
			t.Errorf("%v", l.Err())
		}
	})
}

// The node of a handle is gone: no call through it is sent any more, and what
// it held is lost.
func TestHandleInvalid(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		l := acquired(t, h)
		s := f.only()
		f.locked(func() {
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_HANDLE_INVALID, Handle: uint64(h.id), Reason: chubbypb.EndReason_END_REASON_DELETION})
		})
		<-l.Context().Done()
		if _, err := h.Stat(t.Context()); !errors.Is(err, api.HandleClosed) || len(f.heard("GetStat")) != 0 {
			t.Errorf("Stat: %v", err)
		}
		wants(t, "Close", h.Close(t.Context()), nil)
	})
}

// Close ends the contexts of locks before the cell can give the locks away.
func TestCloseEndsLocksFirst(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		l := acquired(t, lockable(t, c, 0))
		f.script(func(s seen) verb {
			if s.method == "EndSession" && l.Context().Err() == nil {
				t.Errorf("EndSession was sent while the lock's context was alive")
			}
			return nil
		})
		closeClient(t, c)
		if !errors.Is(l.Err(), Closed) || f.state().held != 0 {
			t.Errorf("%v, held %d", l.Err(), f.state().held)
		}
		closeClient(t, c) // does nothing
		wants(t, "Open after Close", second(c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: true})), Closed)
		wants(t, "Locks after Close", second(c.cell.Locks(t.Context(), "")), Closed)
	})
}

// Close does not hang on a cell that cannot be reached.
func TestCloseUnreachable(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.cut(addresses()...)
		began := time.Now()
		if err := c.Close(context.WithoutCancel(t.Context())); !errors.Is(err, api.Unavailable) || time.Since(began) > maxCloseTime+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The cell is told that nobody has read a sequencer (a finding of Lint), unless somebody has found it in the context.
func TestSequencerOfContextIsRead(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		for _, reads := range []bool{false, true} {
			l := acquired(t, h)
			within, stop := l.With(t.Context())
			if reads {
				if s, ok := sequencer.FromContext(within); !ok || s.Token() != l.seq.Token() {
					t.Errorf("%v %v", s, ok)
				}
			}
			stop()
			noError(t, l.Release(t.Context()))
			all := f.heard("Release")
			if told := all[len(all)-1].request.(*chubbypb.ReleaseRequest).GetSequencerUnread(); told == reads {
				t.Errorf("read %v, and the cell was told: unread %v", reads, told)
			}
		}
	})
}
