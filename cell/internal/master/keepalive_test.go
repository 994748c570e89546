package master

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A longer lease is granted only after its entry has committed: the next master
// begins with what the log says (decision 6).
func TestLongerLeaseIsInTheLogFirst(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.Sessions.keepAlives = 0.02 // one session of 12 s sends more
		var granted time.Duration
		for range 5 {
			synctest.Wait()
			s, _ := m.epoch.state().Sessions.Get(c.who.Session)
			reply, err := m.Sessions.KeepAlive(t.Context(), c.who, Receipt{}, nil) // as if the previous reply had been lost, so it is answered at once
			noErr(t, err)
			granted = reply.Grant.Lease
			stopIf(t, granted > s.Lease, "granted %v when the log knew of %v", granted, s.Lease)
		}
		equal(t, granted, api.MaxLease, "granted %v at last")
	})
}

// Chubby §2.8: a client cannot keep its session without acknowledging its
// events: until it has, its lease is not extended.
func TestNothingIsExtendedUnacknowledged(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, reader := m.client(t, 1), m.client(t, 2)
		f := author.open(t, "/ls/local/f", api.MayCreate).Handle
		reader.open(t, "/ls/local/f", api.MustExist)
		done := author.write(t.Context(), f)
		events := reader.hear(t) // this reply still extends the lease, because all earlier events are acknowledged
		for range 3 {
			time.Sleep(time.Second)
			if reply, err := m.Sessions.KeepAlive(t.Context(), reader.who, Receipt{Grant: reader.grant}, nil); err != nil || reply.Grant != nil || len(reply.Events) != 1 {
				t.Fatalf("%v, %v", reply, err)
			}
		}
		before := reader.grant
		reader.acked = events[0].Sequence
		time.Sleep(time.Second)
		reader.hear(t) // parked until the lease is due; the reply asks for a sign of life
		reader.hear(t) // the sign of life
		failIf(t, reader.grant <= before, "acknowledged, and not extended")
		report(t, <-done)
	})
}

// A lease counts from the start of the proof behind it, however long the proof
// takes: another master may have been elected since (session, M1).
func TestLeaseCountsFromTheProof(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		m.proving.set(func() { time.Sleep(3 * time.Second) })
		began := m.epoch.clock()
		reply, err := m.Sessions.KeepAlive(t.Context(), c.who, Receipt{}, nil)
		m.proving.clear()
		noErr(t, err)
		g := reply.Grant
		failIf(t, g.Parked > time.Second, "the lease is said to begin %v after the request", g.Parked)
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if end, _ := m.tables.Leases.End(c.who.Session); end > began.Add(g.Lease) {
			t.Errorf("the lease ends %v after the proof began", end.Sub(began))
		}
	})
}

// A KeepAlive that waits without a goroutine is resumed when there is something to tell, when its lease is due to be
// extended, when a newer one has taken its place, and when the epoch has ended.
func TestParkedKeepAliveIsResumed(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		waits := func() (k *KeepAlive, resumed *atomic.Bool) {
			k, err := m.Sessions.Park(c.who, c.heard(), nil)
			if err != nil || !k.Waits() {
				t.Fatal(k, err)
			}
			resumed = &atomic.Bool{}
			k.Notify(func() { resumed.Store(true) })
			if synctest.Wait(); resumed.Load() {
				t.Fatal("resumed at once")
			}
			return k, resumed
		}
		finish := func(k *KeepAlive, resumed *atomic.Bool) error {
			if synctest.Wait(); !resumed.Load() {
				t.Error("not resumed")
			}
			x, err := k.Finish(t.Context())
			if x.Grant != nil {
				c.grant = x.Grant.Number
			}
			for _, e := range x.Events {
				c.acked = e.Sequence
			}
			return err
		}
		k, resumed := waits()
		m.locked(func() { m.tables.Boxes.ByID[c.who.Session].Post(&Event{Kind: api.EventContentsModified}) })
		if err := finish(k, resumed); err != nil || c.acked == 0 {
			t.Error("told of something:", err)
		}
		k, resumed = waits()
		time.Sleep(session.Due(api.DefaultLease))
		report(t, finish(k, resumed), "due")
		c.hear(t) // the sign of life
		k, resumed = waits()
		newer, resumedNewer := waits()
		fails(t, finish(k, resumed), api.Cancelled, "replaced")
		m.end(api.Errorf(api.NotMaster, "another is"))
		fails(t, finish(newer, resumedNewer), api.NotMaster, "at the end of the epoch")
		fails(t, errOf(m.Sessions.Park(c.who, c.heard(), nil)), api.NotMaster, "parked after the epoch")
	})
}

// The state machine of a deposed master that has not noticed applies what its successor writes. A lease granted then is no
// longer than the one that the successor began with: that is how long it waits before it ends the session.
func TestLeaseIsThatOfTheProof(t *testing.T) {
	for name, next := range map[string]func(api.SessionID) raftfsm.Command{
		"the session ends": func(id api.SessionID) raftfsm.Command {
			return raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id, Reason: api.ByExpiry}}}}
		},
		"its lease gets longer": func(id api.SessionID) raftfsm.Command {
			return raftfsm.Command{RaiseLease: &raftfsm.RaiseLease{Session: id, Lease: api.MaxLease}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				c := m.clientOf(t, 1, func(c *raftfsm.CreateSession) { c.Lease = time.Second })
				m.Sessions.keepAlives = 0.01 // it is to have a longer one
				k, err := m.Sessions.Park(c.who, Receipt{}, nil)
				noErr(t, err)
				k.Prove(func() {})
				synctest.Wait()
				state := elected(*m.fsm.Load(), 2)
				state.Apply(state.Applied+1, 2, raftfsm.Entry{Epoch: 2, Commands: []raftfsm.Command{next(c.who.Session)}})
				m.fsm.Store(state)
				x, err := k.Finish(t.Context())
				stopIf(t, err != nil || x.Grant == nil || x.Grant.Lease > time.Second, "%v, %v", x.Grant, err)
			})
		})
	}
}

// heardAt is a connection over which something arrived last at that time.
type heardAt struct {
	lively
	at session.Instant
}

func (h heardAt) LastArrival() session.Instant { return h.at }

// However long a KeepAlive waits before it is parked, its answer is due as long after its arrival: the client does not wait longer.
func TestAnswerIsDueFromTheArrival(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		conn := heardAt{at: m.epoch.clock()}
		time.Sleep(2500 * time.Millisecond)
		k, err := m.Sessions.Park(c.who, c.heard(), conn)
		stopIf(t, err != nil || !k.Waits(), "%v, %v", k, err)
		resumed := make(chan struct{})
		k.Notify(sync.OnceFunc(func() { close(resumed) }))
		<-resumed
		if after := m.epoch.clock().Sub(conn.at); after > session.Due(api.DefaultLease) {
			t.Errorf("due %v after the arrival", after)
		}
	})
}

// distant is the connection of a client, with all that a server keeps for one.
type distant struct {
	lively
	kept [64 << 10]byte
}

// A session may live on for hours after one of its calls has ended. The connection of the call is not kept with it.
func TestEndedKeepAliveIsForgotten(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		conn := func() weak.Pointer[distant] {
			conn := &distant{lively: lively{m.epoch.clock}}
			ctx, end := context.WithCancel(t.Context())
			k, err := m.Sessions.Park(c.who, c.heard(), conn)
			stopIf(t, err != nil || !k.Waits(), "%v, %v", k, err)
			k.Notify(func() { _ = conn.kept[0] })
			end() // and the transport resumes it
			fails(t, errOf(k.Finish(ctx)), api.Cancelled, "its client has gone")
			return weak.Make(conn)
		}()
		synctest.Wait()
		runtime.GC()
		if conn.Value() != nil {
			t.Error("the connection is kept")
		}
		runtime.KeepAlive(m)
	})
}

// A KeepAlive whose answer takes so long that it is no sign of life any more is answered
// without a grant; the next one has it at once, and not when the lease is due to be extended.
func TestGrantAfterALateAnswer(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		for _, late := range []time.Duration{0, 2 * maxSilence, 0} {
			k, err := m.Sessions.Park(c.who, Receipt{}, nil) // as if the previous reply had been lost
			if err != nil || k.Waits() {
				t.Fatal(k, err)
			}
			time.Sleep(late)
			reply, err := k.Finish(t.Context())
			stopIf(t, err != nil || (reply.Grant != nil) != (late == 0), "after %v: %v, %v", late, reply.Grant, err)
			if reply.Grant != nil {
				c.grant = reply.Grant.Number
			}
			if late > 0 {
				began := time.Now()
				if c.hear(t); time.Since(began) > 0 {
					t.Errorf("granted %v later", time.Since(began))
				}
			}
		}
	})
}

// Replies that are due at about the same time are sent together, never late. So very many sessions cost a master less.
func TestRepliesDueTogether(t *testing.T) {
	const lease = 12 * time.Second
	for due := session.Instant(0); due < session.Instant(time.Second); due += session.Instant(7 * time.Millisecond) {
		at := alignDue(due, lease)
		stopIf(t, at > due || due.Sub(at) >= lease/48 || alignDue(at, lease) != at, "due at %d, sent at %d", due, at)
	}
}
