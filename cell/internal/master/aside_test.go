package master

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// asides is a KeepAlive with several replies.
type asides struct {
	t       *testing.T
	c       *soloClient
	call    *KeepAlive
	resumed atomic.Bool
}

// lively is a connection over which something arrives all the time.
type lively struct{ now session.Clock }

func (l lively) LastArrival() session.Instant                   { return l.now() }
func (lively) AskForLife(session.Instant, session.Instant) bool { return true }

// waitAside sends a KeepAlive, which has to wait.
func (c *soloClient) waitAside(t *testing.T) *asides {
	t.Helper()
	k, err := c.m.Sessions.Park(c.who, c.heard(), lively{c.m.epoch.clock})
	if err != nil || !k.Waits() {
		t.Fatal(k, err)
	}
	a := &asides{t: t, c: c, call: k}
	a.rest()
	return a
}

// rest waits on.
func (a *asides) rest() {
	a.resumed.Store(false)
	a.call.Notify(func() { a.resumed.Store(true) })
}

// told resumes, and returns the kinds of the events that the client gets while the call waits on.
func (a *asides) told() []api.EventKind {
	a.t.Helper()
	if synctest.Wait(); !a.resumed.Load() {
		return nil
	}
	events := a.call.Tell()
	if len(events) > 0 {
		a.rest()
	}
	return kindsOf(events)
}

// answer ends the call, which is due.
func (a *asides) answer() Extension {
	a.t.Helper()
	if synctest.Wait(); !a.resumed.Load() {
		a.t.Fatal("not due")
	}
	if events := a.call.Tell(); len(events) > 0 {
		a.t.Fatalf("waits on, and tells of %v", kindsOf(events))
	}
	x := must(a.call.Finish(a.t.Context()))(a.t)
	if x.Grant != nil {
		a.c.grant = x.Grant.Number
	}
	return x
}

func kindsOf(events []*Event) (kinds []api.EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// post posts events to a session.
func (c *soloClient) post(kinds ...api.EventKind) {
	c.m.epoch.mu.Lock()
	defer c.m.epoch.mu.Unlock()
	for _, kind := range kinds {
		c.m.tables.Boxes.ByID[c.who.Session].Post(&Event{Kind: kind})
	}
}

// A KeepAlive sends events that take nothing away and waits on, until the lease is due to be
// extended, which it is although they are acknowledged only with the next one.
func TestToldAside(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		began := time.Now()
		a := c.waitAside(t)
		for range 3 {
			c.post(api.EventContentsModified, api.EventLockVacant)
			if got := a.told(); len(got) != 2 {
				t.Errorf("told of %v", got)
			}
			if got := a.told(); got != nil {
				t.Errorf("told again, of %v", got)
			}
		}
		time.Sleep(session.Due(api.DefaultLease))
		if x := a.answer(); x.Grant == nil || len(x.Events) > 0 || time.Since(began) > session.Due(api.DefaultLease) {
			t.Errorf("answered after %v with %v and %v", time.Since(began), x.Grant, kindsOf(x.Events))
		}
		c.acked = 6
		c.waitAside(t)
	})
}

// What takes something away, or is waited for, ends the call, which then sends the rest.
func TestNotToldAside(t *testing.T) {
	for kind := api.EventContentsModified; kind <= api.EventLockVacant; kind++ {
		if kind.Subscribable() && kind != api.EventConflictingLock {
			continue
		}
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			c := m.client(t, 1)
			a := c.waitAside(t)
			c.post(api.EventContentsModified)
			a.told()
			c.post(api.EventChildAdded, kind)
			if got := kindsOf(a.answer().Events); len(got) != 2 || got[1] != kind {
				t.Errorf("%v: answered with %v", kind, got)
			}
		})
	}
}

// A call that has been replaced tells nothing, and takes nothing from the one in its place.
func TestReplacedTellsNothing(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		older := c.waitAside(t)
		c.post(api.EventContentsModified)
		c.acked = 0
		synctest.Wait() // resumed, and about to tell
		if k, err := m.Sessions.Park(c.who, c.heard(), nil); err != nil || k.Waits() {
			t.Fatal(k, err)
		}
		if got := older.call.Tell(); got != nil {
			t.Errorf("tells of %v", kindsOf(got))
		}
	})
}

// A call that is finished only after a newer one has sent more takes no part in what the newer one
// owes, or that would extend nothing.
func TestLateAnswerOwesNothing(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		older, err := m.Sessions.Park(c.who, Receipt{}, nil) // as if the reply before had been lost
		if err != nil || older.Waits() {
			t.Fatal(older, err)
		}
		newer := c.waitAside(t)
		c.post(api.EventContentsModified)
		newer.told()
		if x, err := older.Finish(t.Context()); !errors.Is(err, api.Cancelled) {
			t.Errorf("the older is answered with %v, %v", x, err)
		}
		time.Sleep(session.Due(api.DefaultLease))
		failIf(t, newer.answer().Grant == nil, "the newer extends nothing")
	})
}

// The call is due, given up, or over with the epoch, while it tells: it does not wait on.
func TestDueWhileTelling(t *testing.T) {
	for name, end := range map[string]func(m *soloMaster){
		"due":                     func(*soloMaster) { time.Sleep(session.Due(api.DefaultLease)) },
		"at the end of the epoch": func(m *soloMaster) { m.end(api.Errorf(api.NotMaster, "another is")) },
	} {
		for _, early := range []bool{true, false} {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				c := m.client(t, 1)
				k := must(m.Sessions.Park(c.who, c.heard(), nil))(t)
				k.Notify(func() {})
				c.post(api.EventContentsModified)
				if early {
					end(m)
					synctest.Wait()
				}
				if told := k.Tell(); early != (len(told) == 0) {
					t.Fatalf("%s: tells of %v", name, kindsOf(told))
				}
				if !early {
					end(m)
					synctest.Wait()
					resumed := false
					if k.Notify(func() { resumed = true }); !resumed {
						t.Errorf("%s: waits on", name)
					}
				}
				_, _ = k.Finish(t.Context()) // stops its timer
			})
		}
	}
}
