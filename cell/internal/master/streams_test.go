package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Copies of a request for a lock may arrive in any order, and the last may be
// one that its client has given up long ago. When its stream ends, the other
// streams keep the request's place, and each gets the answer.
func TestEveryStreamStandsForItsRequest(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		late, stop := context.WithCancel(t.Context())
		given := c[1].wait(late, h[1], claim)
		stop()
		if a := answered(t, given); !errors.Is(a.err, api.Uncertain) {
			t.Fatal(a.err)
		}
		next := c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
		time.Sleep(time.Minute) // longer than the place of an absent waiter is kept
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
		select {
		case a := <-next:
			t.Errorf("a later request: %v", a.err)
		default:
		}
	})
}

// Of two copies of a Close, one may be refused for lack of room while the other is on its way.
// Until both have ended, the handle's waiters are offered nothing: the offer would come after the
// Close in the log, and no client would release the granted lock.
func TestRefusedCopyOfClose(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		closing := c[1].mutation()
		closing.Outstanding = []api.RequestNumber{claim.Mutation.Number, closing.Number}
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		done := make(chan error, 2)
		go func() { done <- m.Files.Close(t.Context(), closing, h[1]) }()
		<-entered
		m.congested(func() {
			if err := m.Files.Close(t.Context(), closing, h[1]); !errors.Is(err, api.Unavailable) {
				t.Error(err)
			}
		})
		go func() { done <- m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation) }()
		synctest.Wait()
		close(leave)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
			t.Errorf("the waiter: %v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// A waiter whose handle was closed gets its refusal after the log has refused it. Otherwise a late
// copy of its request could be granted by the next master, which would make the handle again.
func TestWaiterOfAClosedHandleIsRefusedByTheLog(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		closing := c[1].mutation()
		closing.Outstanding = []api.RequestNumber{claim.Mutation.Number, closing.Number}
		m.applying = func() {
			m.applying = nil
			m.epoch.proposer.mu.Lock()
			defer m.epoch.proposer.mu.Unlock()
			m.epoch.proposer.closed = api.Errorf(api.Unavailable, "too much waits") // for the refusal, at first
		}
		if err := m.Files.Close(t.Context(), closing, h[1]); err != nil {
			t.Fatal(err)
		}
		if !stillAsks(waits) {
			t.Error("it got a refusal that is not in the log")
		}
		m.congested(func() {}) // from now on there is room
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) {
			t.Error(a.err)
		}
		if !m.Master.epoch.isAnswered(claim.Mutation) {
			t.Error("the log knows nothing of the refusal")
		}
	})
}

func stillAsks(waits <-chan lockAnswer) bool {
	synctest.Wait()
	return len(waits) == 0
}
