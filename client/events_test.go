package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

func watching(t *testing.T, c *Client) *Handle {
	t.Helper()
	h := opened(t, c, "/ls/foo/x", OpenOptions{
		Read: true, Write: true, Create: File, Events: []api.EventKind{api.EventContentsModified, api.EventConflictingLock},
	})
	return h
}

func modified(generation uint64) *chubbypb.Event {
	return &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CONTENTS_MODIFIED, Path: "/ls/foo/x", Generation: generation}
}

// waiting returns the kinds of the events that wait for the application.
func (h *Handle) waiting() []api.EventKind {
	h.mu.Lock()
	defer h.mu.Unlock()
	var kinds []api.EventKind
	for _, e := range h.queue.waiting {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Chubby §2.5: events come in order, to the handle that asked for them, and are
// acknowledged although nobody has read them: at the latest when the lease is due to be
// extended, if the KeepAlive has waited on while it told of them.
func TestEvents(t *testing.T) {
	for _, old := range []bool{false, true} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.single.Store(old)
			testEvents(t, f)
			if asked := len(f.heard("KeepAlive")); asked != map[bool]int{false: 2, true: 6}[old] {
				t.Errorf("of an old master %v: %d KeepAlives", old, asked)
			}
		})
	}
}

func testEvents(t *testing.T, f *fake) {
	c := f.client(f.config())
	h, other := watching(t, c), lockable(t, c, 0)
	sent := f.heard("Open")[0].request.(*chubbypb.OpenRequest).GetEvents()
	if !slices.Equal(sent, []chubbypb.EventKind{chubbypb.EventKind_EVENT_KIND_CONTENTS_MODIFIED, chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK}) {
		t.Errorf("asked for %v", sent)
	}
	s := f.only()
	synctest.Wait() // until a KeepAlive is parked: one that comes later is answered at once, and another sent
	for i := range uint64(3) {
		f.mu.Lock() // so that one KeepAlive tells of both
		s.tell(uint64(h.id), modified(i+1))
		s.tell(uint64(other.id), modified(i+1))
		f.mu.Unlock()
		time.Sleep(time.Second)
		if n := len(h.waiting()); n != int(i+1) {
			t.Errorf("%d events wait after %d", n, i+1)
		}
	}
	f.tell(s, uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CHILD_ADDED, Child: "kid"})
	time.Sleep(session.Due(c.Lease()))
	if acked := f.state().acked; acked != 7 {
		t.Errorf("acknowledged %d", acked)
	}
	for i := range 3 {
		e, err := h.Next(t.Context())
		if err != nil || e.Kind != api.EventContentsModified || e.Generation != api.Generation(i+1) || e.Path != "/ls/foo/x" {
			t.Errorf("%+v, %v", e, err)
		}
	}
	ctx := bounded(t, time.Second)
	var got []string
	for e, err := range h.Events(ctx) {
		got = append(got, fmt.Sprint(e.Kind, e.Child, errors.Is(err, api.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded)))
	}
	if want := []string{"child-addedkidfalse false", "event 0true true"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := other.Next(t.Context()); !errors.Is(err, api.InvalidArgument) || len(other.queue.waiting) != 0 {
		t.Errorf("a handle without events: %v, %d queued", err, len(other.queue.waiting))
	}
}

func TestEventsAskedFor(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		for kind := api.EventContentsModified; kind <= api.EventLockVacant+1; kind++ {
			for _, read := range []bool{true, false} {
				want := kind.Subscribable() && (read || kind == api.EventLockAcquired || kind == api.EventLockVacant || kind == api.EventConflictingLock)
				_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: read, Write: true, Create: File, Events: []api.EventKind{kind}})
				if (err == nil) != want || err != nil && (!errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), kind.String())) {
					t.Errorf("%v, read %v: %v", kind, read, err)
				}
			}
		}
	})
}

// An application that does not read its events holds up nobody, and costs a
// bounded queue; what did not fit is one marker, in its place. The end of the node always fits.
func TestEventsSlowApplication(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := watching(t, c)
		s := f.only()
		tell := func(n int) {
			for range n {
				f.tell(s, uint64(h.id), modified(1))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		tell(api.MaxEventQueue + 700)
		time.Sleep(session.Due(c.Lease()))
		if kinds := h.waiting(); len(kinds) != api.MaxEventQueue+1 || slices.Index(kinds, api.EventLost) != api.MaxEventQueue {
			t.Fatalf("%d wait, the marker is number %d", len(kinds), slices.Index(kinds, api.EventLost))
		}
		if acked := f.state().acked; acked != api.MaxEventQueue+700 {
			t.Errorf("acknowledged %d", acked)
		}
		take := func() {
			must(t, second(h.Next(t.Context())))
		}
		take()
		tell(5)
		if kinds := h.waiting(); len(kinds) != api.MaxEventQueue || kinds[len(kinds)-1] != api.EventLost {
			t.Errorf("%d wait, at last %v", len(kinds), kinds[len(kinds)-1])
		}
		take()
		tell(5) // the first has room, the others are one marker again
		kinds := h.waiting()
		if len(kinds) != api.MaxEventQueue+1 || !slices.Equal(kinds[len(kinds)-3:], []api.EventKind{api.EventLost, api.EventContentsModified, api.EventLost}) {
			t.Errorf("%d wait, at last %v", len(kinds), kinds[len(kinds)-3:])
		}
		f.tell(s, uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_HANDLE_INVALID, Reason: chubbypb.EndReason_END_REASON_DELETION})
		time.Sleep(time.Second)
		if kinds := h.waiting(); kinds[len(kinds)-1] != api.EventHandleInvalid {
			t.Errorf("the node is gone, and at last waits %v", kinds[len(kinds)-1])
		}
	})
}

// Whatever ends a handle, what was queued comes first, then the error, also to
// those who waited already.
func TestEventsEnd(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(f *fake, c *Client, h *Handle)
		code api.Code
		also error // that the error wraps
		last []api.EventKind
	}{
		{"Close", func(f *fake, _ *Client, h *Handle) { _ = h.Close(f.t.Context()) }, api.HandleClosed, nil, nil},
		{"Poison", func(_ *fake, _ *Client, h *Handle) { h.Poison() }, api.HandleClosed, Poisoned, nil},
		{"Client.Close", func(f *fake, c *Client, _ *Handle) { _ = c.Close(f.t.Context()) }, api.SessionExpired, Closed, nil},
		{"the node goes", func(f *fake, _ *Client, h *Handle) {
			f.tell(f.only(), uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_HANDLE_INVALID, Reason: chubbypb.EndReason_END_REASON_DELETION})
		}, api.HandleClosed, nil, []api.EventKind{api.EventHandleInvalid}},
		{"the session ends", func(f *fake, _ *Client, _ *Handle) {
			f.post(f.only(), chubbypb.EventKind_EVENT_KIND_SESSION_ENDED)
		}, api.SessionExpired, EndedByCell, nil},
	} {
		runInSession(t, end.name, func(t *testing.T, f *fake, c *Client) {
			queued, empty := watching(t, c), watching(t, c)
			var waiters sync.WaitGroup
			for range 3 {
				waiters.Go(func() {
					e, err := empty.Next(t.Context())
					if err == nil && len(end.last) > 0 && e.Kind == end.last[0] {
						_, err = empty.Next(t.Context())
					}
					if !errors.Is(err, end.code) || end.also != nil && !errors.Is(err, end.also) {
						t.Errorf("who waited: %v, %v", e, err)
					}
				})
			}
			for range 2 {
				f.tell(f.only(), uint64(queued.id), modified(1))
			}
			time.Sleep(time.Second)
			end.end(f, c, queued)
			end.end(f, c, empty)
			waiters.Wait()
			want := append([]api.EventKind{api.EventContentsModified, api.EventContentsModified}, end.last...)
			var got []api.EventKind
			for e, err := range queued.Events(t.Context()) {
				if err != nil {
					if !errors.Is(err, end.code) || end.also != nil && !errors.Is(err, end.also) {
						t.Errorf("at last %v", err)
					}
					break
				}
				got = append(got, e.Kind)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A sequence that jumps is a loss that everybody is told of; an event that comes
// again is not told again.
func TestEventSequences(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.single.Store(true) // what the script changes is the last reply
		c := f.client(f.config())
		one, two, deaf := watching(t, c), watching(t, c), lockable(t, c, 0)
		s := f.only()
		f.mu.Lock()
		s.sequence = 2 // 1 and 2 never come
		f.mu.Unlock()
		f.tell(s, uint64(one.id), modified(1))
		time.Sleep(time.Second)
		if got := one.waiting(); !slices.Equal(got, []api.EventKind{api.EventLost, api.EventContentsModified}) {
			t.Errorf("a gap: %v", got)
		}
		if got := two.waiting(); !slices.Equal(got, []api.EventKind{api.EventLost}) || len(deaf.waiting()) != 0 {
			t.Errorf("others: %v, %v", got, deaf.waiting())
		}
		f.on("KeepAlive", func(_ context.Context, next func() (any, error)) (any, error) {
			reply, err := next()
			if r, ok := reply.(*chubbypb.KeepAliveReply); ok && err == nil {
				r.Events = append(r.Events, r.GetEvents()...)
			}
			return reply, err
		}) // the events of every reply come twice
		time.Sleep(10 * time.Second)
		f.tell(s, uint64(one.id), modified(2))
		f.tell(s, uint64(one.id), modified(3))
		time.Sleep(time.Second)
		if got := one.waiting(); len(got) != 4 {
			t.Errorf("with duplicates: %v", got)
		}
	})
}

// The master's marker that it dropped events concerns every handle.
func TestEventsLost(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		one, two := watching(t, c), watching(t, c)
		f.tell(f.only(), uint64(one.id), modified(1))
		f.post(f.only(), chubbypb.EventKind_EVENT_KIND_LOST)
		f.tell(f.only(), uint64(one.id), modified(2))
		time.Sleep(time.Second)
		if got := one.waiting(); !slices.Equal(got, []api.EventKind{api.EventContentsModified, api.EventLost, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
		if got := two.waiting(); !slices.Equal(got, []api.EventKind{api.EventLost}) {
			t.Errorf("%v", got)
		}
	})
}

// Loss of the lock is told in its place, after the lock's context has ended.
func TestLockLostEvent(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := watching(t, c)
		l := acquired(t, h)
		s := f.only()
		f.tell(s, uint64(h.id), modified(1))
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		f.tell(s, uint64(h.id), modified(2))
		var got []api.EventKind
		for range 3 {
			e := ok(h.Next(t.Context()))(t)
			got = append(got, e.Kind)
			if e.Kind == api.EventLockLost && (l.Err() == nil || e.Reason != api.ByBreak || e.Explanation == "" || e.Generation != l.Sequencer().Generation) {
				t.Errorf("%+v; the lock: %v", e, l.Err())
			}
		}
		if !slices.Equal(got, []api.EventKind{api.EventContentsModified, api.EventLockLost, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
		wants(t, "Release", l.Release(t.Context()), api.LockLost)
	})
}

// What is told in the moment in which somebody finds nothing, and then that
// nothing comes any more, is found first.
func TestLastEventIsFoundBeforeTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var last func() // called when the session looks at its clock
		cfg := f.config()
		clock := cfg.Clock
		cfg.Clock = func() session.Instant {
			if tell := last; tell != nil {
				last = nil
				tell()
				return clock().Add(time.Hour)
			}
			return clock()
		}
		c := f.client(cfg)
		h := watching(t, c)
		synctest.Wait()
		last = func() { h.pushEvent(api.Event{Kind: api.EventContentsModified}) }
		if e, err := h.Next(t.Context()); err != nil || e.Kind != api.EventContentsModified {
			t.Errorf("at the end of the session: %v, %v", e.Kind, err)
		}
		if e, err := h.Next(t.Context()); !errors.Is(err, GraceOver) {
			t.Errorf("after it: %v, %v", e.Kind, err)
		}
	})
}

// That a handle is invalid is an event, and the last: who ranges over the events
// finds it however it meets him.
func TestInvalidationIsFoundBeforeTheEnd(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
		for range 20_000 {
			h := newHandle(c, api.MustParsePath("/ls/foo/x"), OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
			done := make(chan struct{})
			go func() {
				defer close(done)
				h.noteTakenAway(api.EventHandleInvalid, 0, api.ByDeletion, "")
			}()
			e, err := h.Next(t.Context())
			<-done
			if err != nil || e.Kind != api.EventHandleInvalid {
				t.Fatalf("%v, %v", e.Kind, err)
			}
		}
	})
}
