package master

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// pair is two workers, who have the first and the second lock; each can have opened them in a way of its own.
func pair(t *testing.T, m *soloMaster, edit func(*Handle)) *deadlocks {
	t.Helper()
	d := &deadlocks{t: t, m: m, rnd: rand.New(rand.NewPCG(1, 1)), names: []api.Name{"/a", "/b"}}
	for i := range 2 {
		c := m.clientOf(t, byte(i), patient)
		opened := map[api.Name]Handle{}
		for _, name := range d.names {
			q := c.asked("/ls/local"+string(name), raftfsm.Open{Create: api.MayCreate})
			if edit != nil {
				edit(&q.Handle)
			}
			opened[name] = must(m.Files.Open(t.Context(), q))(t).Handle
		}
		d.workers = append(d.workers, &worker{number: i, clients: []*soloClient{c}, opened: []map[api.Name]Handle{opened}})
	}
	for i, w := range d.workers {
		if a := w.clients[0].try(t, w.opened[0][d.names[i]], api.Exclusive); a.Generation == 0 {
			t.Fatal(a)
		}
	}
	return d
}

// cross has each of a pair ask for what the other has, and to hear if that is a deadlock.
func (d *deadlocks) cross() { d.crossWanting(true) }

// crossWanting is cross of workers who may not want to be told.
func (d *deadlocks) crossWanting(detect bool) {
	for i, w := range d.workers {
		h := w.opened[0][d.names[1-i]]
		claim := w.clients[0].claim(h, api.Exclusive)
		w.waits = &asked{done: make(chan lockAnswer, 1)}
		go func() {
			a, err := d.m.Locks.Acquire(context.WithoutCancel(d.t.Context()), requestFor(claim, h).detectIf(detect))
			w.waits.done <- lockAnswer{a, err}
		}()
		synctest.Wait()
	}
}

// told returns what the second of a pair is told within two seconds: nil if nothing.
func (d *deadlocks) told() (answer *lockAnswer) {
	time.Sleep(2 * time.Second)
	synctest.Wait()
	for _, w := range d.workers {
		select {
		case got := <-w.waits.done:
			answer = &got
		default:
		}
	}
	d.m.end(api.Errorf(api.NotMaster, "the test is over"))
	return answer
}

// A cycle that closes while a handle is not known yet to a new master is found by the clock.
func TestDeadlockIsFoundLater(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		d := pair(t, m, nil)
		m.failOver(t)
		d.cross()
		for i, w := range d.workers {
			noErr(t, m.Files.Use(w.opened[0][d.names[i]], 0, false))
		}
		if got := d.told(); got == nil || !errors.Is(got.err, api.Deadlock) {
			t.Errorf("told %+v, want a deadlock", got)
		}
	})
}

// Without a request to detect them deadlocks cost nothing: no edge is looked at, when a request comes or later.
func TestDeadlocksThatNobodyAsksForCostNothing(t *testing.T) {
	for _, detect := range []bool{false, true} {
		inSolo(t, nil, func(t *testing.T, m *soloMaster) {
			d, looks := pair(t, m, nil), 0
			m.epoch.mu.Lock()
			m.Locks.graph.known = func(o namespace.Owner) *tables.OpenHandle {
				looks++
				return m.tables.Handles.Find(o)
			}
			m.epoch.mu.Unlock()
			d.crossWanting(detect)
			got := d.told()
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			if (got != nil) != detect || (looks > 0) != detect {
				t.Errorf("asked for: %t; told %+v, and %d edges were looked at", detect, got, looks)
			}
		})
	}
}

// Who keeps a lock that it may not be using gives it back when another asks: nobody is told that it waits without end.
func TestKeptLockIsNoDeadlock(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		d := pair(t, m, func(h *Handle) { h.CachesLock = true })
		d.cross()
		if got := d.told(); got != nil {
			t.Errorf("told %+v", got)
		}
	})
}

// A lock that is being taken from its holder is free soon, whatever that waits for.
func TestBrokenLockIsNoDeadlock(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		d := pair(t, m, nil)
		operator := m.clientOf(t, 9, patient)
		node, _ := m.epoch.state().Tree.Get("/a")
		noErr(t, m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: operator.mutation(), Lock: node.Ref(), Why: "stuck"}))
		d.cross()
		if got := d.told(); got != nil {
			t.Errorf("told %+v", got)
		}
	})
}

// A refusal does not name the locks that its principal may not read.
func TestDeadlockHidesNames(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		d := pair(t, m, nil)
		c := m.clientOf(t, 9, patient)
		list := c.open(t, "/ls/local/acl/everyone", api.MustExist).Handle
		noErr(t, c.set(t.Context(), c.mutation(), list, []byte("root\n")))
		d.cross()
		got := d.told()
		stopIf(t, got == nil || !errors.Is(got.err, api.Deadlock), "told %+v, want a deadlock", got)
		var e *api.Error
		if errors.As(got.err, &e); len(e.Cycle) != 2 || e.Cycle[0].Path != "" || e.Cycle[1].Path != "" || strings.Contains(e.Message, "/ls/") {
			t.Errorf("told %+v", e)
		}
	})
}

// A cell that is not at the level refuses to look for deadlocks, and says so.
func TestDeadlocksNeedTheLevel(t *testing.T) {
	inSolo(t, func(s *raftfsm.State) { s.Level = raftfsm.DeadlockLevel - 1 }, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		h := c.open(t, "/ls/local/a", api.MayCreate).Handle
		for _, detect := range []bool{true, false} {
			_, err := m.Locks.Acquire(t.Context(), requestFor(c.claim(h, api.Exclusive), h).detectIf(detect))
			failIf(t, api.CodeOf(err) == api.Unavailable != detect, "detects %v: %v", detect, err)
		}
	})
}
