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
)

// A new master tells nothing about a handle that it does not know (the fake
// neither), so handles with events are presented, a few at a time, and the
// application is told of the fail-over afterwards: between its look and the next
// event nothing is missed.
func TestFailOverPresentsHandles(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
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
		f.locked(func() { f.gone[string(gone.currentToken())] = true })
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
		wants(t, "Stat of it", second(gone.Stat(t.Context())), api.HandleClosed)
		if len(deaf.waiting()) != 0 {
			t.Errorf("a handle without events: %v", deaf.waiting())
		}
	})
}

// A handle that one master opened, and whose opening is answered when the next
// is already known, is presented too.
func TestOpenDuringFailOver(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		f.on("Open", then(func() {
			f.elect("a:1") // in a new epoch, so that the connection stays
			time.Sleep(2 * time.Second)
		}))
		h := watching(t, c)
		f.script(nil)
		time.Sleep(time.Second)
		f.tell(f.only(), uint64(h.id), modified(1))
		time.Sleep(time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver, api.EventContentsModified}) {
			t.Errorf("%v", got)
		}
	})
}

// A call on a handle makes a new master know it before the audit shows it, and
// with the fail-over may come an event that is not the first since: it is told
// only after the application was asked to look again.
func TestFailOverIsToldFirst(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := watching(t, c)
		f.on("GetStat", after(time.Second))
		f.elect("b:1")
		must(t, second(h.SetContents(t.Context(), nil)))
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
	})
}

// What is late from the master before the present one is not told.
func TestEventsOfAnEarlierEpoch(t *testing.T) {
	inSession(t, func(t *testing.T, _ *fake, c *Client) {
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
	})
}

// Another epoch is a fail-over, also if no event says so.
func TestFailOverWithoutEvent(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := watching(t, c)
		f.on("KeepAlive", func(_ context.Context, next func() (any, error)) (any, error) {
			reply, err := next()
			if r, ok := reply.(*chubbypb.KeepAliveReply); ok && err == nil {
				r.Events = nil
			}
			return reply, err
		})
		f.elect("b:1")
		time.Sleep(3 * time.Second)
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventMasterFailedOver}) {
			t.Errorf("%v", got)
		}
	})
}

// That another wants the lock cannot be seen by looking again, so it is told also if
// it is heard before the new master was shown the handle: after the fail-over.
func TestConflictIsToldAfterTheFailOver(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := watching(t, c)
		must(t, second(h.Acquire(t.Context(), api.Exclusive)))
		f.on("GetStat", after(time.Second))
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
	})
}

// Of large requests only some are under way at a time, also of several sessions. Small
// ones, KeepAlives among them, do not wait for them. The time of those that wait has not
// begun: who gives up has sent nothing, and the master is not asked again for its silence.
func TestLargeRequestsArePaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		_, clients, handles, _ := f.crowd(2)
		const slow = defaultCallTimeout - time.Second
		large, most := 0, 0
		var mu sync.Mutex // guards large and most
		f.script(func(s seen) verb {
			if s.method != "SetContents" && s.method != "Open" || len(contentsOf(s)) < api.MaxContents {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				mu.Lock()
				large++
				most = max(most, large)
				mu.Unlock()
				time.Sleep(slow)
				mu.Lock()
				large--
				mu.Unlock()
				return next()
			}
		})
		contents := make([]byte, api.MaxContents)
		var work sync.WaitGroup
		for i := range maxLargeChanges {
			for j, c := range clients {
				work.Go(func() {
					var err error
					if i == 0 {
						_, err = c.Open(t.Context(), fmt.Sprintf("/ls/foo/y%d", j), OpenOptions{Write: true, Create: File, Contents: contents})
					} else {
						_, err = handles[j].SetContents(t.Context(), contents)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(time.Second)
		began := time.Now()
		if _, err := handles[0].SetContents(t.Context(), []byte("small")); err != nil || time.Since(began) > time.Second {
			t.Errorf("a small request meanwhile: %v, after %v", err, time.Since(began))
		}
		within := bounded(t, time.Second)
		if _, err := handles[0].SetContents(within, contents); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, api.Uncertain) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("one that gave up: %v", err)
		}
		work.Wait()
		if sent := len(f.heard("SetContents")) + len(f.heard("Open")); most != maxLargeChanges || sent != 2*maxLargeChanges+1+len(clients) {
			t.Errorf("%d requests were sent, and %d large ones were under way at a time", sent, most)
		}
		synctest.Wait()
	})
}

func contentsOf(s seen) []byte {
	one, _ := s.request.(interface{ GetContents() []byte })
	if one == nil {
		return nil
	}
	return one.GetContents()
}
