package client

import (
	"errors"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Events that are missing may have taken a lock away: they are acknowledged when
// every lock was asked about, and those that turn out lost have been let go.
func TestMissingEventsHoldBack(t *testing.T) {
	for _, lost := range []bool{true, false} {
		inBubble(t, func(t *testing.T, f *fake) {
			c, l := f.held(f.config())
			f.script(func(s seen) verb {
				if s.method == "GetSequencer" {
					return after(2 * time.Second)
				}
				return nil
			})
			s := f.only()
			f.mu.Lock()
			f.holder.revoked = 99 // and nobody is told
			if !lost {
				f.holder.revoked = 0
			}
			s.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOST})
			f.mu.Unlock()
			time.Sleep(time.Second)
			if f.state().acked != 0 {
				t.Errorf("acknowledged before the lock was asked about")
			}
			time.Sleep(2 * time.Second)
			if got := f.state().acked; (l.Err() != nil) != lost || (got == 0) != lost {
				t.Errorf("lost %v: the lock says %v, acknowledged %d", lost, l.Err(), got)
			}
			if err := l.Release(t.Context()); (err != nil) != lost {
				t.Errorf("Release: %v", err)
			}
			time.Sleep(time.Second)
			if f.state().acked != 1 {
				t.Errorf("acknowledged %d in the end", f.state().acked)
			}
			closeClient(t, c)
		})
	}
}

// What came before the loss is acknowledged even if the first KeepAlive that says
// so gets lost.
func TestAcknowledgementIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		failed := false
		f.script(func(s seen) verb {
			if s.method == "KeepAlive" && s.request.(*chubbypb.KeepAliveRequest).GetAcknowledged() == 1 && !failed {
				failed = true
				return fail(api.Errorf(api.Unavailable, "not now"))
			}
			return nil
		})
		f.mu.Lock()
		f.holder.session.queue(&chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CACHE_INVALIDATION})
		f.tellLoss(f.holder, chubbypb.EndReason_END_REASON_BREAK)
		f.mu.Unlock()
		time.Sleep(2 * time.Second)
		if acked := f.state().acked; acked != 1 || !failed {
			t.Errorf("acknowledged %d", acked)
		}
		_ = l.Release(t.Context())
		closeClient(t, c)
	})
}

// Events that are missing hold nothing back any more when the session has ended: there
// is no lock left to ask about, and what it held is free when its owner has let go.
func TestMissingEventsAndTheEnd(t *testing.T) {
	for range 8 { // nothing says which of two channels is read first
		inBubble(t, func(t *testing.T, f *fake) {
			c, l := f.held(f.config())
			f.script(func(s seen) verb {
				if s.method == "GetSequencer" {
					return hang
				}
				return nil
			})
			s := f.only()
			f.post(s, chubbypb.EventKind_EVENT_KIND_LOST)
			time.Sleep(time.Second) // the lock is being asked about
			f.post(s, chubbypb.EventKind_EVENT_KIND_LOST)
			time.Sleep(100 * time.Millisecond)
			f.mu.Lock()
			s.doom()
			f.mu.Unlock()
			<-c.Done()
			time.Sleep(time.Second)
			if f.state().held == 0 {
				t.Error("the lock is free although its owner has not let go")
			}
			if err := l.Release(t.Context()); !errors.Is(err, api.SessionExpired) {
				t.Errorf("Release: %v", err)
			}
			time.Sleep(time.Second)
			if f.state().held != 0 {
				t.Error("the lock is not free although its owner has let go")
			}
			closeClient(t, c)
		})
	}
}
