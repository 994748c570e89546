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
	h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{
		Read: true, Write: true, Create: File, Events: []api.EventKind{api.EventContentsModified, api.EventConflictingLock},
	})
	if err != nil {
		t.Fatal(err)
	}
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
	for _, e := range h.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Chubby §2.5: events come in order, to the handle that asked for them, and are
// acknowledged although nobody has read them.
func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h, other := watching(t, c), lockable(t, c, 0)
		sent := f.heard("Open")[0].request.(*chubbypb.OpenRequest).GetEvents()
		if !slices.Equal(sent, []chubbypb.EventKind{chubbypb.EventKind_EVENT_KIND_CONTENTS_MODIFIED, chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK}) {
			t.Errorf("asked for %v", sent)
		}
		s := f.only()
		for i := range uint64(3) {
			f.tell(s, uint64(h.id), modified(i+1))
			f.tell(s, uint64(other.id), modified(i+1))
		}
		f.tell(s, uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CHILD_ADDED, Child: "kid"})
		time.Sleep(time.Second)
		if acked := f.state().acked; acked != 7 {
			t.Errorf("acknowledged %d", acked)
		}
		for i := range 3 {
			e, err := h.Next(t.Context())
			if err != nil || e.Kind != api.EventContentsModified || e.Generation != api.Generation(i+1) || e.Path != "/ls/foo/x" {
				t.Errorf("%+v, %v", e, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var got []string
		for e, err := range h.Events(ctx) {
			got = append(got, fmt.Sprint(e.Kind, e.Child, errors.Is(err, api.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded)))
		}
		if want := []string{"child-addedkidfalse false", "event 0true true"}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if _, err := other.Next(t.Context()); !errors.Is(err, api.InvalidArgument) || len(other.events) != 0 {
			t.Errorf("a handle without events: %v, %d queued", err, len(other.events))
		}
		closeClient(t, c)
	})
}

func TestEventsAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		for kind := api.EventContentsModified; kind <= api.EventLockVacant+1; kind++ {
			for _, read := range []bool{true, false} {
				want := kind.Subscribable() && (read || kind == api.EventLockAcquired || kind == api.EventLockVacant || kind == api.EventConflictingLock)
				_, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Read: read, Write: true, Create: File, Events: []api.EventKind{kind}})
				if (err == nil) != want || err != nil && (!errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), kind.String())) {
					t.Errorf("%v, read %v: %v", kind, read, err)
				}
			}
		}
		closeClient(t, c)
	})
}

// An application that does not read its events holds up nobody, and costs a
// bounded queue; what did not fit is one marker, in its place.
func TestEventsSlowApplication(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
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
		if kinds := h.waiting(); len(kinds) != api.MaxEventQueue+1 || slices.Index(kinds, api.EventLost) != api.MaxEventQueue {
			t.Fatalf("%d wait, the marker is number %d", len(kinds), slices.Index(kinds, api.EventLost))
		}
		if acked := f.state().acked; acked != api.MaxEventQueue+700 {
			t.Errorf("acknowledged %d", acked)
		}
		take := func() {
			if _, err := h.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
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
		closeClient(t, c)
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
		t.Run(end.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
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
				_ = c.Close(t.Context())
			})
		})
	}
}

// A sequence that jumps is a loss that everybody is told of; an event that comes
// again is not told again; one of an earlier epoch is not told at all.
func TestEventSequences(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
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
		f.script(func(s seen) verb { // the events of every reply come twice
			if s.method != "KeepAlive" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				if r, ok := reply.(*chubbypb.KeepAliveReply); ok && err == nil {
					r.Events = append(r.Events, r.GetEvents()...)
				}
				return reply, err
			}
		})
		time.Sleep(10 * time.Second)
		f.tell(s, uint64(one.id), modified(2))
		f.tell(s, uint64(one.id), modified(3))
		time.Sleep(time.Second)
		if got := one.waiting(); len(got) != 4 {
			t.Errorf("with duplicates: %v", got)
		}
		f.script(func(s seen) verb {
			if s.method != "KeepAlive" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				if r, ok := reply.(*chubbypb.KeepAliveReply); ok && err == nil && len(r.GetEvents()) > 0 {
					r.Epoch = 4
				}
				return reply, err
			}
		})
		time.Sleep(10 * time.Second)
		f.tell(s, uint64(one.id), modified(4))
		time.Sleep(3 * time.Second)
		if got := one.waiting(); len(got) != 4 || f.state().acked != 5 {
			t.Errorf("of an earlier epoch: %v, acknowledged %d", got, f.state().acked)
		}
		f.script(nil)
		closeClient(t, c)
	})
}

// The master's marker that it dropped events concerns every handle.
func TestEventsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
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
		closeClient(t, c)
	})
}

// A new master tells nothing about a handle that it does not know (the fake
// neither), so handles with events are presented, a few at a time, and the
// application is told of the fail-over afterwards: between its look and the next
// event nothing is missed.
func TestFailOverPresentsHandles(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		var list []*Handle
		for range 20 {
			list = append(list, watching(t, c))
		}
		gone, deaf := watching(t, c), lockable(t, c, 0)
		poisoned := watching(t, c)
		poisoned.Poison()
		var mu sync.Mutex
		at, most := 0, 0
		f.script(func(s seen) verb {
			if s.method != "GetStat" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				mu.Lock()
				at++
				most = max(most, at)
				mu.Unlock()
				for _, h := range list {
					if token := s.request.(*chubbypb.GetStatRequest).GetHandle(); string(token) == string(h.currentToken()) && len(h.waiting()) != 0 {
						t.Errorf("the fail-over was told before the handle was presented: %v", h.waiting())
					}
				}
				time.Sleep(100 * time.Millisecond)
				reply, err := next()
				mu.Lock()
				at--
				mu.Unlock()
				return reply, err
			}
		})
		f.mu.Lock()
		f.gone[string(gone.currentToken())] = true
		f.mu.Unlock()
		f.elect("b:1")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if most != maxConcurrentAudits || len(f.heard("GetStat")) != 21 {
			t.Errorf("%d at a time, %d in all", most, len(f.heard("GetStat")))
		}
		for _, h := range list {
			f.tell(f.only(), uint64(h.id), modified(9))
		}
		time.Sleep(time.Second)
		for i, h := range list {
			if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver, api.EventContentsModified}) {
				t.Errorf("handle %d: %v", i, got)
			}
		}
		if got := gone.waiting(); !slices.Equal(got, []api.EventKind{api.EventHandleInvalid}) {
			t.Errorf("of a node that is gone: %v", got)
		}
		if _, err := gone.Stat(t.Context()); !errors.Is(err, api.HandleClosed) {
			t.Errorf("Stat of it: %v", err)
		}
		if len(deaf.waiting()) != 0 {
			t.Errorf("a handle without events: %v", deaf.waiting())
		}
		closeClient(t, c)
	})
}

// A handle that one master opened, and whose opening is answered when the next
// is already known, is presented too.
func TestOpenDuringFailOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			if s.method != "Open" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				f.elect("a:1") // in a new epoch, so that the connection stays
				time.Sleep(2 * time.Second)
				return reply, err
			}
		})
		h := watching(t, c)
		f.script(nil)
		time.Sleep(time.Second)
		f.tell(f.only(), uint64(h.id), modified(1))
		time.Sleep(time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
		closeClient(t, c)
	})
}

// Loss of the lock is told in its place, after the lock's context has ended.
func TestLockLostEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := watching(t, c)
		l, err := h.Acquire(t.Context(), api.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		s := f.only()
		f.tell(s, uint64(h.id), modified(1))
		f.takeLock(chubbypb.EndReason_END_REASON_BREAK)
		f.tell(s, uint64(h.id), modified(2))
		var got []api.EventKind
		for range 3 {
			e, err := h.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Kind)
			if e.Kind == api.EventLockLost && (l.Err() == nil || e.Reason != api.ByBreak || e.Explanation == "" || e.Generation != l.Sequencer().Generation) {
				t.Errorf("%+v; the lock: %v", e, l.Err())
			}
		}
		if !slices.Equal(got, []api.EventKind{api.EventContentsModified, api.EventLockLost, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
		if err := l.Release(t.Context()); !errors.Is(err, api.LockLost) {
			t.Errorf("Release: %v", err)
		}
		closeClient(t, c)
	})
}

// A call on a handle makes a new master know it before the audit shows it, and
// with the fail-over may come an event that is not the first since: it is told
// only after the application was asked to look again.
func TestFailOverIsToldFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := watching(t, c)
		f.script(func(s seen) verb {
			if s.method != "GetStat" {
				return nil
			}
			return after(time.Second)
		})
		f.elect("b:1")
		if _, err := h.SetContents(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.tell(f.only(), uint64(h.id), modified(7))
		time.Sleep(500 * time.Millisecond)
		if got := h.waiting(); len(got) != 0 || f.state().acked != 2 {
			t.Errorf("%v was told before the fail-over; acknowledged %d", got, f.state().acked)
		}
		time.Sleep(time.Second)
		f.tell(f.only(), uint64(h.id), modified(8))
		time.Sleep(time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
		closeClient(t, c)
	})
}

// What is late from the master before the present one is not told.
func TestEventsOfAnEarlierEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := watching(t, c)
		k := newKeeper(t.Context(), c)
		defer k.stop()
		e := modified(1)
		e.Handle, e.Sequence = uint64(h.id), 1
		k.handleReply(nil, &chubbypb.KeepAliveReply{Epoch: 4, Events: []*chubbypb.Event{e}})
		if len(h.waiting()) != 0 || k.inbox.acknowledged() != 0 {
			t.Errorf("%v, acknowledged %d", h.waiting(), k.inbox.acknowledged())
		}
		k.handleReply(nil, &chubbypb.KeepAliveReply{Epoch: 5, Events: []*chubbypb.Event{e}})
		if len(h.waiting()) != 1 || k.inbox.acknowledged() != 1 {
			t.Errorf("%v, acknowledged %d", h.waiting(), k.inbox.acknowledged())
		}
		closeClient(t, c)
	})
}

// Another epoch is a fail-over, also if no event says so.
func TestFailOverWithoutEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := watching(t, c)
		f.script(func(s seen) verb {
			if s.method != "KeepAlive" {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				reply, err := next()
				if r, ok := reply.(*chubbypb.KeepAliveReply); ok && err == nil {
					r.Events = nil
				}
				return reply, err
			}
		})
		f.elect("b:1")
		time.Sleep(3 * time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver}) {
			t.Errorf("%v", got)
		}
		f.script(nil)
		closeClient(t, c)
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
		_ = c.Close(t.Context())
	})
}

// That a handle is invalid is an event, and the last: who ranges over the events
// finds it however it meets him.
func TestInvalidationIsFoundBeforeTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
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
		closeClient(t, c)
	})
}

// That another wants the lock cannot be seen by looking again, so it is told also if
// it is heard before the new master was shown the handle: after the fail-over.
func TestConflictIsToldAfterTheFailOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := watching(t, c)
		if _, err := h.Acquire(t.Context(), api.Exclusive); err != nil {
			t.Fatal(err)
		}
		f.script(func(s seen) verb {
			if s.method != "GetStat" {
				return nil
			}
			return after(time.Second)
		})
		f.elect("b:1")
		time.Sleep(500 * time.Millisecond) // the lock has been asked about, through the handle
		f.tell(f.only(), uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK})
		f.tell(f.only(), uint64(h.id), modified(7))
		time.Sleep(200 * time.Millisecond)
		if got := h.waiting(); len(got) != 0 {
			t.Errorf("%v was told before the fail-over", got)
		}
		time.Sleep(2 * time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver, api.EventConflictingLock}) {
			t.Errorf("%v", got)
		}
		closeClient(t, c)
	})
}
