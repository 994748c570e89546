//go:build linux

package recipe

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// lives fails the test if a session is over some leases later: the cell extends none whose owner keeps a
// lock that was taken away.
func (w *world) lives(c *client.Client) {
	w.t.Helper()
	pass(2 * time.Minute)
	if err := c.Err(); err != nil {
		w.t.Errorf("the session is over: %v", err)
	}
}

// member returns the path of the file of a participant of the double barrier who holds its lock.
func (w *world) member(c *client.Client, but string) string {
	w.t.Helper()
	for range 1000 {
		locks, err := c.Cell().Locks(w.ctx, partyDir)
		w.ok(err)
		for _, l := range locks {
			if len(l.Holders) > 0 && l.Path != but {
				return l.Path
			}
		}
		pass(10 * time.Millisecond)
	}
	w.t.Fatal("there is no participant")
	return ""
}

// One who waits at a double barrier, and whose lock is taken away by an operator, is told, and keeps its
// session.
func TestParticipantIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, operator := w.dial("h1"), w.dial("operator")
			entered := make(chan error, 1)
			go func() {
				_, err := NewDoubleBarrier(one, partyDir, 2).Enter(w.ctx)
				entered <- err
			}()
			pass(5 * time.Second)
			w.ok(operator.BreakLock(w.ctx, w.member(operator, ""), "a test", now))
			select {
			case err := <-entered:
				if !errors.Is(err, api.LockLost) {
					t.Errorf("Enter: %v", err)
				}
			case <-time.After(time.Second):
				t.Error("Enter goes on with a member that is lost")
			}
			w.lives(one)
			for _, p := range w.party(2, one, operator) {
				if p == nil || p.Round() != 1 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// One whose lock is taken away while it works is waited for until it has let go, also when those who wait
// ask who lives.
func TestParticipantIsBrokenInside(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
		passes := w.party(2, one, two)
		left := make(chan error, 1)
		go func() { left <- passes[1].Leave(w.ctx) }()
		pass(verify - 2*time.Second)
		w.ok(operator.BreakLock(w.ctx, partyDir+"/"+passes[0].name, "a test", false))
		<-passes[0].Context().Done()
		select {
		case err := <-left:
			t.Fatalf("let out while the other had not let go: %v", err)
		case <-time.After(3 * time.Second): // it takes some time to stop
		}
		w.ok(one.Err())
		w.ok(passes[0].Leave(w.ctx))
		w.ok(<-left)
	})
}

// Whoever would be the n-th lets nobody in if its own lock was taken away in the last moment.
func TestLastParticipantIsBroken(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		const way = 200 * time.Millisecond
		w.Slow("h2", way)
		one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
		for i := range 32 {
			ctx, cancel := w.brief(10 * time.Second)
			type result struct {
				pass *Pass
				err  error
				at   time.Time
			}
			enter := func(c *client.Client) chan result {
				ch := make(chan result, 1)
				go func() {
					p, err := NewDoubleBarrier(c, partyDir, 2).Enter(ctx)
					ch <- result{p, err, time.Now()}
				}()
				return ch
			}
			first := enter(one)
			pass(time.Second)
			mine := w.member(operator, "")
			second := enter(two)
			theirs := w.member(operator, mine)
			pass(time.Duration(i) * way / 4)
			broken := time.Now()
			err := operator.BreakLock(w.ctx, theirs, "a test", true)
			a, b := <-first, <-second
			cancel()
			if err == nil && a.err == nil && a.at.Sub(broken) > way/8 {
				t.Errorf("%d: let in %v after the other was dead", i, a.at.Sub(broken))
			}
			var leaving sync.WaitGroup // one waits for the other
			for _, r := range []result{a, b} {
				if r.err == nil {
					leaving.Go(func() {
						ctx, cancel := w.brief(time.Minute)
						defer cancel()
						_ = r.pass.Leave(ctx)
					})
				}
			}
			leaving.Wait()
		}
	})
}

// A semaphore is not made smaller on the strength of a slot that was taken away again, and who wants it
// keeps its session.
func TestVacatedSlotIsBroken(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		inSmallWorld(t, func(w *world) {
			one, two, operator := w.dial("h1"), w.dial("h2"), w.dial("operator")
			sem := NewSemaphore(one, semDir, 3)
			permits := map[int]*Permit{}
			for range 3 {
				p, err := sem.Acquire(w.ctx, SemaphoreOptions{})
				w.ok(err)
				permits[p.Slot()] = p
			}
			w.ok(permits[1].Release(w.ctx)) // it is vacated, and slot 2 is waited for
			resized := make(chan error, 1)
			go func() { resized <- ResizeSemaphore(w.ctx, two, semDir, 1) }()
			pass(time.Second)
			w.ok(operator.BreakLock(w.ctx, semDir+"/"+slotName(1), "a test", now))
			pass(time.Second)
			p, err := sem.TryAcquire(w.ctx, SemaphoreOptions{})
			w.ok(err)
			if p.Slot() != 1 {
				t.Errorf("slot %d", p.Slot())
			}
			w.ok(permits[2].Release(w.ctx))
			if err := <-resized; !errors.Is(err, api.LockLost) || !strings.Contains(err.Error(), "vacated") {
				t.Errorf("resized: %v", err)
			}
			if size := w.cat(operator, semDir+"/"+turnstileName); size != "3" || p.Context().Err() != nil {
				t.Errorf("the size is %s, and the slot: %v", size, p.Lock().Err())
			}
			w.lives(two)
		})
	}
}
