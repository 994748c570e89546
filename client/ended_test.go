package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// doomed ends the only session from outside.
func (f *fake) doomed() {
	s := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.doom()
}

// over reports whether the cell has ended its only session and freed its locks.
func (f *fake) over() bool {
	s := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.ended
}

// A session that somebody else ended is over at once for its application; the
// cell frees its locks when their owner has let go, which the last KeepAlive
// says (decision 10).
func TestSessionEnded(t *testing.T) {
	for name, letGo := range map[string]func(t *testing.T, l *Lock){
		"Release": func(t *testing.T, l *Lock) {
			if err := l.Release(t.Context()); !errors.Is(err, api.SessionExpired) || !errors.Is(err, EndedByCell) {
				t.Errorf("Release: %v", err)
			}
		},
		"Handle.Close": func(t *testing.T, l *Lock) {
			if err := l.handle.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		},
		"Client.Close": func(t *testing.T, l *Lock) { closeClient(t, l.handle.client) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c, l := f.held(f.config())
				began := time.Since(f.began)
				f.doomed()
				<-c.Done()
				if d := time.Since(f.began) - began; d > 10*time.Millisecond || !errors.Is(c.Err(), EndedByCell) || !strings.Contains(c.Err().Error(), "ended by bob: too old") {
					t.Errorf("after %v: %v", d, c.Err())
				}
				if !errors.Is(l.Err(), EndedByCell) || l.ExclusiveUntil() != 0 {
					t.Errorf("the lock: %v, exclusive for %v", l.Err(), l.ExclusiveUntil())
				}
				time.Sleep(5 * time.Second)
				if f.over() || f.state().held == 0 || len(f.keepAlives(began)) > 1 || slices.Contains(f.keepAlives(began), 1) {
					t.Errorf("acknowledged before the owner has let go: %v", f.keepAlives(began))
				}
				letGo(t, l)
				if name != "Client.Close" { // which waits for it
					time.Sleep(minPause)
					synctest.Wait()
				}
				if !f.over() || f.state().held != 0 {
					t.Errorf("not acknowledged although the owner has let go: %v", f.keepAlives(began))
				}
				closeClient(t, c)
				if asked := f.keepAlives(began); len(asked) > 2 || asked[len(asked)-1] != 1 {
					t.Errorf("KeepAlives %v", asked)
				}
			})
		})
	}
}

// Without locks there is nothing to wait for.
func TestSessionEndedWithoutLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		time.Sleep(time.Second)
		f.doomed()
		<-c.Done()
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		if !f.over() {
			t.Errorf("not acknowledged")
		}
		if _, err := h.Stat(t.Context()); !errors.Is(err, EndedByCell) {
			t.Errorf("Stat: %v", err)
		}
		closeClient(t, c)
	})
}

// When the lease is over before the owner has let go, nothing is acknowledged
// any more: the master has counted on the lease alone.
func TestSessionEndedForTheDeaf(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		began := time.Since(f.began)
		f.doomed()
		time.Sleep(20 * time.Second)
		select {
		case <-c.keeper.done:
		default:
			t.Errorf("the last KeepAlive is still to be sent")
		}
		_ = l.Release(t.Context())
		closeClient(t, c)
		if asked := f.keepAlives(began); len(asked) > 3 || slices.Max(asked) > 0 {
			t.Errorf("KeepAlives %v", asked)
		}
	})
}

// A call may hear first that the session has ended. The KeepAlive in flight then
// brings what is to be acknowledged.
func TestCallHearsOfTheEndFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		f.script(func(s seen) verb {
			if s.method == "GetStat" {
				return fail(api.Errorf(api.SessionExpired, "it is being ended"))
			}
			return nil
		})
		if _, err := l.handle.Stat(t.Context()); !errors.Is(err, EndedByCell) {
			t.Errorf("Stat: %v", err)
		}
		f.doomed()
		time.Sleep(5 * time.Second)
		if f.over() {
			t.Errorf("acknowledged before the owner has let go")
		}
		_ = l.Release(t.Context())
		time.Sleep(time.Second)
		if !f.over() {
			t.Errorf("not acknowledged although the owner has let go")
		}
		closeClient(t, c)
	})
}

// The last KeepAlive is repeated until a master has it; another master tells
// again first.
func TestSessionEndedAcrossFailOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		f.doomed()
		<-c.Done()
		time.Sleep(time.Second)
		f.cut("a:1")
		f.elect("b:1")
		_ = l.Release(t.Context())
		time.Sleep(3 * time.Second)
		if !f.over() {
			t.Errorf("not acknowledged")
		}
		closeClient(t, c)
	})
}

// Close does not wait for a master that is not there.
func TestSessionEndedUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, _ := f.held(f.config())
		f.doomed()
		<-c.Done()
		f.cut(addresses()...)
		began := time.Now()
		closeClient(t, c)
		if d := time.Since(began); d > maxCloseTime {
			t.Errorf("Close took %v", d)
		}
	})
}

// Ending another's session is a mutation with a reason.
func TestEndSession(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		operator := f.client(f.config())
		if err := operator.EndSession(t.Context(), operator.Session(), "x"); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("its own: %v", err)
		}
		if err := operator.EndSession(t.Context(), 0, "x"); !errors.Is(err, api.NotFound) || len(f.heard("EndSession")) > 0 {
			t.Errorf("session 0, which nobody has: %v, %d calls", err, len(f.heard("EndSession")))
		}
		if err := operator.EndSession(t.Context(), c.Session(), strings.Repeat("x", api.MaxReason+1)); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("a long reason: %v", err)
		}
		if err := operator.EndSession(t.Context(), 99, ""); !errors.Is(err, api.NotFound) || operator.Err() != nil {
			t.Errorf("of nobody: %v, %v", err, operator.Err())
		}
		if err := operator.EndSession(t.Context(), c.Session(), ""); err != nil {
			t.Errorf("%v", err)
		}
		<-l.Context().Done()
		if !errors.Is(c.Err(), EndedByCell) {
			t.Errorf("%v", c.Err())
		}
		for _, s := range f.heard("EndSession") {
			if r, ok := s.request.(interface{ GetReason() string }); s.number == 0 || !ok || r.GetReason() != noReason {
				t.Errorf("%+v", s)
			}
		}
		closeClient(t, c)
		closeClient(t, operator)
	})
}

// A lock that was granted just when the session ended is not handed out: the end
// may have been acknowledged without it.
func TestGrantAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		l := newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(7))
		c.session.endSession(EndedByCell, "by bob")
		if err := h.setLock(l); !errors.Is(err, EndedByCell) || len(c.handles.unreleasedLocks()) != 0 {
			t.Errorf("%v, %d locks", err, len(c.handles.unreleasedLocks()))
		}
		closeClient(t, c)
	})
}

// One last KeepAlive is enough, also if the master answers it while it is still
// busy ending the session.
func TestLastKeepAliveIsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		time.Sleep(time.Second)
		began := time.Since(f.began)
		f.script(func(s seen) verb {
			if k, ok := s.request.(*chubbypb.KeepAliveRequest); !ok || k.GetAcknowledged() == 0 {
				return nil
			}
			return func(context.Context, func() (any, error)) (any, error) {
				return &chubbypb.KeepAliveReply{Epoch: 5}, nil
			}
		})
		time.Sleep(time.Second)
		f.doomed()
		time.Sleep(5 * time.Second)
		if asked := f.keepAlives(began); len(asked) != 1 {
			t.Errorf("KeepAlives %v", asked)
		}
		f.script(nil)
		closeClient(t, c)
	})
}

// A handle that was granted its lock anew has lost the one before, though no event told
// of that. The answers may come in either order.
func TestLaterGrantEndsTheEarlier(t *testing.T) {
	for _, late := range []bool{false, true} {
		inBubble(t, func(t *testing.T, f *fake) {
			c := f.client(f.config())
			h := lockable(t, c, 0)
			grant := func(generation uint64) *Lock {
				return newLock(h, lockTerms{mode: api.Exclusive}, f.parsedSequencer(generation))
			}
			earlier, later := grant(7), grant(8)
			if !late {
				if err := h.setLock(earlier); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.setLock(later); err != nil {
				t.Fatal(err)
			}
			if late {
				if err := h.setLock(earlier); !errors.Is(err, api.LockLost) {
					t.Errorf("an answer that came late: %v", err)
				}
			} else if !errors.Is(earlier.Err(), LockTaken) {
				t.Errorf("the earlier lock: %v", earlier.Err())
			}
			if locks := c.handles.unreleasedLocks(); len(locks) != 1 || locks[0] != later || later.Err() != nil {
				t.Errorf("%d locks; the later: %v", len(locks), later.Err())
			}
			closeClient(t, c)
		})
	}
}
