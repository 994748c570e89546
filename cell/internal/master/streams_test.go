package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Copies of a request for a lock may arrive in any order, and the last one to come
// may be the one that its client has long given up. When that breaks, the others
// still stand for the request: it keeps its place, and every one is answered.
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
		time.Sleep(time.Minute) // longer than the place of one who is away is kept
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
		select {
		case a := <-next:
			t.Errorf("one who came later: %v", a.err)
		default:
		}
	})
}

// Of two copies of a Close one may be refused for want of room while the other is on
// its way. Until both have ended, the handle's waiters are offered nothing: the offer
// would be behind the Close, and nobody would release the lock that it grants.
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
			t.Errorf("who waited: %v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// A waiter that is refused because its handle was closed is told so when the log has
// refused it: a late copy of its request finds the same at the next master, which
// would recreate the handle.
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
			t.Error("it was told of a refusal that the log has not")
		}
		m.congested(func() {}) // there is room from now on
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
