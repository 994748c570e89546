package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// A master whose machine stops closes no connection: another is looked for as soon
// as a call waits, and found when there is one. Nobody has to wait for CallTimeout.
func TestMasterStops(t *testing.T) {
	call := map[string]func(context.Context, *Handle) error{
		"Stat":    func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"Acquire": func(ctx context.Context, h *Handle) error { _, err := h.Acquire(ctx, api.Exclusive); return err },
	}
	for name, elected := range map[string]time.Duration{"Stat": lateAfter / 2, "Acquire": 2 * lateAfter} {
		runInBubble(t, name, func(t *testing.T, f *fake) {
			var stopped atomic.Bool
			f.when(func(s seen) bool { return s.address == "a:1" && (stopped.Load() || s.method == "KeepAlive") }, hang)
			c := f.client(f.config())
			h := lockable(t, c, 0)
			stopped.Store(true)
			time.AfterFunc(elected, func() { f.elect("b:1") })
			began := time.Now()
			noError(t, call[name](t.Context(), h))
			if d, most := time.Since(began), max(elected, lateAfter)+time.Second; d > most {
				t.Errorf("it took %v, want %v at most", d, most)
			}
		})
	}
}

// One that is only slow stays the master, and the call goes on: it is not sent
// again, and the replicas are asked once.
func TestMasterIsSlow(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{})
		f.on("GetStat", after(4*lateAfter))
		before := len(f.heard("Locate"))
		noError(t, second(h.Stat(t.Context())))
		if n := len(f.heard("GetStat")); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		if n := len(f.heard("Locate")) - before; n != len(addresses()) {
			t.Errorf("%d times a replica was asked for the master", n)
		}
	})
}

// A call that is under way ends with its session, and not when the master answers, or
// CallTimeout has passed.
func TestCallsEndWithTheirSession(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Handle) error{
		"GetStat": func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"Acquire": func(ctx context.Context, h *Handle) error { _, err := h.Acquire(ctx, api.Exclusive); return err },
	} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			f.on(name, hang)
			ended := make(chan error)
			go func() { ended <- call(t.Context(), h) }()
			time.Sleep(lateAfter / 10)
			began := time.Now()
			c.session.endSession(EndedByCell, "it was ended")
			if err := <-ended; !errors.Is(err, api.SessionExpired) || time.Since(began) > 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	}
}

// unknownKind is one that a newer master may send.
const unknownKind chubbypb.EventKind = 63

// Each kind of the vocabulary is dealt with: none is taken for one of a newer master.
func TestEveryEventKindIsKnown(t *testing.T) {
	for _, kind := range append(api.EventKinds(), api.EventKind(unknownKind)) {
		inBubble(t, func(t *testing.T, f *fake) {
			var log strings.Builder
			cfg := f.config()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c := f.client(cfg)
			f.post(f.only(), chubbypb.EventKind(kind))
			time.Sleep(time.Second)
			closeClient(t, c) // after that nothing is logged any more
			if unknown := strings.Contains(log.String(), "unknown kind"); unknown == kind.Known() {
				t.Errorf("%v: %s", kind, log.String())
			}
		})
	}
}

// Events that are missing, and one of a kind that this version does not know, may have taken a lock
// away: they are acknowledged when every lock was asked about, and those that turn out lost have been
// let go. Handles are told to look again.
func TestMissingEventsHoldBack(t *testing.T) {
	for _, row := range []struct {
		kind chubbypb.EventKind
		lost bool
	}{{chubbypb.EventKind_EVENT_KIND_LOST, true}, {chubbypb.EventKind_EVENT_KIND_LOST, false}, {unknownKind, true}} {
		inBubble(t, func(t *testing.T, f *fake) {
			lost := row.lost
			c, l := f.held(f.config())
			h := watching(t, c)
			f.on("GetSequencer", after(2*time.Second))
			s := f.only()
			f.mu.Lock()
			f.holder.revoked = 99 // and nobody is told
			if !lost {
				f.holder.revoked = 0
			}
			s.queue(&chubbypb.Event{Kind: row.kind})
			f.mu.Unlock()
			time.Sleep(time.Second)
			if got := h.waiting(); f.state().acked != 0 || !slices.Equal(got, []api.EventKind{api.EventLost}) {
				t.Errorf("acknowledged %d before the lock was asked about; a handle was told %v", f.state().acked, got)
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
		})
	}
}

// What came before the loss is acknowledged even if the first KeepAlive that says
// so gets lost.
func TestAcknowledgementIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, l := f.held(f.config())
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
	})
}

// Events that are missing hold nothing back any more when the session has ended: there
// is no lock left to ask about, and what it held is free when its owner has let go.
func TestMissingEventsAndTheEnd(t *testing.T) {
	for range 8 { // nothing says which of two channels is read first
		inBubble(t, func(t *testing.T, f *fake) {
			c, l := f.held(f.config())
			f.on("GetSequencer", hang)
			s := f.only()
			f.post(s, chubbypb.EventKind_EVENT_KIND_LOST)
			time.Sleep(time.Second) // the lock is being asked about
			f.post(s, chubbypb.EventKind_EVENT_KIND_LOST)
			time.Sleep(100 * time.Millisecond)
			f.locked(func() { s.doom() })
			<-c.Done()
			time.Sleep(time.Second)
			if f.state().held == 0 {
				t.Error("the lock is free although its owner has not let go")
			}
			wants(t, "Release", l.Release(t.Context()), api.SessionExpired)
			time.Sleep(time.Second)
			if f.state().held != 0 {
				t.Error("the lock is not free although its owner has let go")
			}
		})
	}
}

// A receiver that is stuck holds up nobody, and what waits for it is bounded: of the
// lines of the log the newest are told; of the changes the first, and then the last.
func TestSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		stop, gate := make(chan struct{}), make(chan struct{})
		var lines, changes, all []int
		var running sync.WaitGroup
		running.Go(func() { n.deliverAll(stop) })
		n.enqueueLog(func() { <-gate })
		synctest.Wait()
		const last = 3*maxNotices - 1
		for i := range last + 1 {
			n.enqueueLog(func() { lines, all = append(lines, i), append(all, i) })
			n.enqueueChange(func() { changes, all = append(changes, i), append(all, i) })
		}
		close(gate)
		synctest.Wait()
		if len(lines) != maxNotices || lines[0] != 2*maxNotices || lines[maxNotices-1] != last {
			t.Errorf("lines %v", lines)
		}
		if len(changes) != maxNotices || changes[maxNotices-2] != maxNotices-2 || changes[maxNotices-1] != last {
			t.Errorf("changes %v", changes)
		}
		if !slices.IsSorted(all) {
			t.Errorf("out of order: %v", all)
		}
		close(stop)
		running.Wait()
	})
}

// What was to be told when Close is called is told before it returns: that the session
// is gone, most of all, as that is when programs call it.
func TestClosedAfterTheLastNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 32 { // nothing says which of two channels is read first
			n := newNotifier()
			stop, gate := make(chan struct{}), make(chan struct{})
			told := false
			var running sync.WaitGroup
			running.Go(func() { n.deliverAll(stop) })
			n.enqueueLog(func() { <-gate })
			synctest.Wait()
			n.enqueueChange(func() { told = true })
			close(stop)
			close(gate)
			running.Wait()
			if !told {
				t.Fatal("the last change was not told")
			}
		}
	})
}

// A process that was stopped for longer than its lease is told that its session is in
// jeopardy, however many locks it holds, each of which has a line of the log.
func TestJeopardyIsToldWithManyLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		jump := f.jumping(&cfg)
		c := f.client(cfg)
		for i := range 2 * maxNotices {
			h := &Handle{client: c, path: fmt.Sprintf("/ls/foo/%d", i)}
			l := newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(7))
			must(t, c.session.trackLock(t.Context(), l))
		}
		f.cut(addresses()...)
		jump(20 * time.Second)
		if state := c.State(); state != session.Jeopardy {
			t.Fatalf("after 20 s: %v", state)
		}
		synctest.Wait()
		if states := r.states(); !slices.Equal(states, []session.State{session.Jeopardy}) {
			t.Errorf("told %v", states)
		}
	})
}
