package client

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// What calls of all sessions of a Cell share leaves places of a connection to the others.
func TestRoomsFitAConnection(t *testing.T) {
	const streams = 2000
	if left := streams - maxCellWaits - maxReads - maxChanges; left < 350 {
		t.Errorf("there is room for %d other calls", left)
	}
	if left := streams - maxSessions - maxAuditCalls - maxCleanupCalls; left < maxSessions*8/10 {
		t.Errorf("there is room for the ends of %d sessions", left)
	}
}

// work returns calls of the program of each kind, by the method that is slow.
func work() map[string]func(context.Context, *Handle) error {
	return map[string]func(context.Context, *Handle) error{
		"GetStat":     func(ctx context.Context, h *Handle) error { _, err := h.Stat(ctx); return err },
		"SetContents": func(ctx context.Context, h *Handle) error { _, err := h.SetContents(ctx, nil); return err },
		"CloseHandle": func(ctx context.Context, h *Handle) error {
			one, err := h.client.Open(ctx, "/ls/foo/x", OpenOptions{Write: true, Create: File})
			if err == nil {
				err = one.Close(ctx)
			}
			return err
		},
	}
}

// However many calls a program makes at a time, and however long they take, its session is
// kept alive.
func TestKeepAlivesWaitForNoCall(t *testing.T) {
	for method, ask := range work() {
		runInBubble(t, method, func(t *testing.T, f *fake) {
			rooms := newCallLimits()
			rooms[classCleanup] = make(chan struct{}, 1+maxCleanupCalls*manyStreams/2000)
			manyCalls(t, f, method, 3*time.Second, ask, rooms, func(c *Client) {
				left := c.Lease()
				for range 1000 {
					time.Sleep(100 * time.Millisecond)
					left = min(left, c.Left())
				}
				if left <= 0 {
					t.Errorf("the session was in jeopardy: %v was left of its lease", left)
				}
			})
		})
	}
}

// However many calls a program makes at a time, none waits where that looks like a master
// that does not answer.
func TestCallsWaitBeforeTheirTimeBegins(t *testing.T) {
	for method, ask := range work() {
		runInBubble(t, method, func(t *testing.T, f *fake) {
			before := 0
			manyCalls(t, f, method, lateAfter*3/4, ask, smallRooms(manyStreams/2), func(c *Client) {
				before = len(f.heard("Locate"))
				time.Sleep(time.Minute)
			})
			if after := len(f.heard("Locate")); after > before {
				t.Errorf("the master was looked for %d times", after-before)
			}
		})
	}
}

const manyStreams = 20 // of a connection

// manyCalls has many make calls all the time, each of which takes slow, while look looks.
func manyCalls(t *testing.T, f *fake, method string, slow time.Duration, ask func(context.Context, *Handle) error, rooms callLimits, look func(*Client)) {
	f.limitStreams("a:1", manyStreams)
	cfg := f.config()
	cfg.NoCache = true
	c := f.client(cfg)
	c.cell.dispatcher.limits = rooms
	h := lockable(t, c, 0)
	f.on(method, after(slow))
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 * manyStreams {
		go func() {
			for ctx.Err() == nil {
				_ = ask(ctx, h)
			}
		}()
	}
	look(c)
	cancel()
	synctest.Wait()
	time.Sleep(time.Minute)
}

// smallRooms are rooms for so many reads or changes.
func smallRooms(n int) callLimits {
	return callLimits{
		classRead: make(chan struct{}, n), classChange: make(chan struct{}, n), classLarge: make(chan struct{}, 1),
		classCleanup: make(chan struct{}, n/2), classAudit: make(chan struct{}, 1),
	}
}

// What waits for room when its session gets into jeopardy keeps no room from the other
// sessions of the Cell.
func TestJeopardyTakesNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, handles, _ := f.crowd(2)
		const room = 2
		cell.dispatcher.limits = smallRooms(room)
		cell.dispatcher.cfg.CallTimeout = time.Minute
		answer := make(chan struct{})
		f.script(func(s seen) verb {
			alive, _ := s.request.(*chubbypb.KeepAliveRequest)
			switch {
			case s.method == "SetContents":
				return func(_ context.Context, next func() (any, error)) (any, error) {
					<-answer
					return next()
				}
			case bytes.Equal(alive.GetCaller().GetSession(), clients[0].session.token):
				return hang
			}
			return nil
		})
		var work sync.WaitGroup
		write := func(h *Handle) {
			for range room {
				work.Go(func() { _, _ = h.SetContents(t.Context(), nil) })
			}
			synctest.Wait()
		}
		write(handles[1]) // these have the room,
		write(handles[0]) // and these wait
		for clients[0].State() != session.Jeopardy {
			time.Sleep(100 * time.Millisecond)
		}
		close(answer)
		wants(t, "a write of another session", second(handles[1].SetContents(bounded(t, 5*time.Second), nil)), nil)
		closeClient(t, clients[0])
		work.Wait()
	})
}

// An audit, for which the extension of the lease may wait, does not wait for the reads of
// the program.
func TestAuditsDoNotWaitForReads(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.NoCache = true
		c := f.client(cfg)
		c.cell.dispatcher.limits = smallRooms(2)
		h := lockable(t, c, 0)
		must(t, second(h.Acquire(t.Context(), api.Exclusive)))
		f.on("GetStat", after(3*time.Second))
		var reads sync.WaitGroup
		for range 20 {
			reads.Go(func() { _, _ = h.Stat(t.Context()) })
		}
		synctest.Wait()
		audited := c.auditor.requestAudit()
		select {
		case <-audited:
		case <-time.After(c.Lease() / 2):
			t.Error("an audit waits for reads")
		}
		reads.Wait()
	})
}

// limitStreams has an address take so many calls over a connection.
func (f *fake) limitStreams(address string, most int) { f.serve(address, most) }

// Questions that wait at the same time are one call, which began after each of
// them; the one that was under way answers only who was there before it.
func TestCheckerCoalesces(t *testing.T) {
	for _, maxAge := range []time.Duration{0, time.Second} {
		inBubble(t, func(t *testing.T, f *fake) {
			_, k := f.checking(t, f.config(), maxAge)
			time.Sleep(2 * time.Second)
			f.on("CheckSequencer", then(func() { time.Sleep(100 * time.Millisecond) })) // decided, and then long on its way
			var group sync.WaitGroup
			ask := func(callers int, check func(*CachingChecker, uint64)) {
				for range callers {
					group.Go(func() { check(k, 101) })
				}
				time.Sleep(50 * time.Millisecond)
			}
			ask(1, f.good)
			if maxAge > 0 {
				ask(10, f.good) // an answer that is kept would do for these, so one that will be does
				group.Wait()
				f.asked(1)
			} else {
				f.give(102)
				ask(10, f.bad)
				group.Wait()
				f.asked(2)
			}
		})
	}
}

// A bad answer to a question that was sent before does not count for those who
// came after it.
func TestCheckerLateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.onFirst("CheckSequencer", func(context.Context, func() (any, error)) (any, error) {
			time.Sleep(100 * time.Millisecond)
			return &chubbypb.CheckSequencerReply{Explanation: "not granted yet"}, nil
		})
		var group sync.WaitGroup
		group.Go(func() { f.bad(k, 101) })
		time.Sleep(50 * time.Millisecond)
		group.Go(func() { f.good(k, 101) })
		group.Wait()
		f.asked(2)
	})
}

// An answer that an event overtook is an answer, and is not kept.
func TestCheckerOvertakenAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, k := f.checking(t, f.config(), time.Second)
		time.Sleep(2 * time.Second)
		f.onFirst("CheckSequencer", then(func() {
			f.give(102)
			f.tell(f.only(), uint64(c.handles.all()[0].id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_LOCK_ACQUIRED, Generation: 102})
			time.Sleep(100 * time.Millisecond)
		}))
		f.good(k, 101)
		f.bad(k, 101)
		f.asked(2)
	})
}

// However many changes of a session are under way, as when they wait for the cache of a
// client that is cut off, what it holds can be given back.
func TestGivingBackBesideManyChanges(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		l := acquired(t, h)
		f.on("SetContents", hang)
		within, leave := context.WithCancel(t.Context())
		for range 2 * api.MaxOutstanding {
			go func() { _, _ = h.SetContents(within, nil) }()
		}
		synctest.Wait()
		ctx := bounded(t, 10*time.Second)
		if err := l.Release(ctx); err != nil || f.state().held != 0 {
			t.Errorf("Release: %v; held %d", err, f.state().held)
		}
		wants(t, "Close", h.Close(ctx), nil)
		f.script(nil)
		leave()
	})
}
