package client

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// cacheable opens the handle of a lock that is kept.
func cacheable(t *testing.T, c *Client) *Handle {
	t.Helper()
	h, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File, CacheLock: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A missing event may have taken a lock away, or have recalled it: no lock is kept over it,
// neither one that is idle nor one that is used at that moment.
func TestNoLockIsKeptOverMissingEvents(t *testing.T) {
	for name, used := range map[string]bool{"idle": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := cacheable(t, c)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				release := func() {
					if err := l.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if !used {
					release()
				}
				f.post(f.only(), chubbypb.EventKind_EVENT_KIND_LOST)
				time.Sleep(time.Second)
				if used {
					release()
				}
				synctest.Wait()
				again, err := h.Acquire(t.Context(), api.Exclusive)
				if err != nil || again.Token() <= l.Token() {
					t.Errorf("%v, token %d after %d", err, again.Token(), l.Token())
				}
				closeClient(t, c)
			})
		})
	}
}

// An audit that finds a lock lost ends the use of it that goes on by then.
func TestAuditEndsALaterUseOfTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := cacheable(t, c)
		uses := make([]*Lock, 2)
		for i := range uses {
			var err error
			if uses[i], err = h.Acquire(t.Context(), api.Exclusive); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				if err := uses[i].Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.mu.Lock()
		f.holder = nil
		f.mu.Unlock()
		c.auditLock(t.Context(), uses[0])
		if uses[1].Err() == nil {
			t.Error("it is used although the cell does not know it")
		}
		closeClient(t, c)
	})
}

// An Acquire that cannot use the lock that is kept leaves nothing with the session.
func TestAcquireInAnotherModeLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := cacheable(t, c)
		use := func(mode api.LockMode) (contexts int) {
			l, err := h.Acquire(t.Context(), mode)
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return reflect.ValueOf(c.session.ended).Elem().FieldByName("children").Len()
		}
		began := use(api.Shared)
		for range 20 {
			use(api.Exclusive)
			use(api.Shared)
		}
		if now := use(api.Shared); now > began {
			t.Errorf("%d contexts depend on the session, and did %d before 40 changes of the mode", now, began)
		}
		closeClient(t, c)
	})
}

// A recall is acknowledged when the lock has been given back, or soon if that takes long: the lease must not
// wait for it.
func TestRecallIsAcknowledgedAfterTheReturn(t *testing.T) {
	for name, answer := range map[string]verb{"late": after(maxReturn / 2), "never": hang} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				h := cacheable(t, c)
				l, err := h.Acquire(t.Context(), api.Exclusive)
				if err == nil {
					err = l.Release(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				hung := 0
				f.script(func(c seen) verb {
					if c.method != "Release" || hung > 0 {
						return nil
					}
					hung++
					return answer
				})
				f.tell(f.only(), uint64(h.id), &chubbypb.Event{Kind: chubbypb.EventKind_EVENT_KIND_CONFLICTING_LOCK, Generation: l.Token()})
				time.Sleep(maxReturn / 3)
				if s := f.state(); s.acked != 0 || s.held == 0 {
					t.Errorf("acknowledged up to %d, and the lock is of %d", s.acked, s.held)
				}
				time.Sleep(maxReturn)
				if s := f.state(); s.acked == 0 || (s.held == 0) != (name == "late") {
					t.Errorf("later: acknowledged up to %d, and the lock is of %d", s.acked, s.held)
				}
				closeClient(t, c)
			})
		})
	}
}
