package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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
		if got := h.waiting(); len(got) != 0 || f.state().told != 2 {
			t.Errorf("%v was told before the fail-over; %d were", got, f.state().told)
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
