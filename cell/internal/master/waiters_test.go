package master

import (
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Some requests can be answered while the lock is held, such as the retry of a granted one. They are answered although
// the proposer had no room when they came. Otherwise a holder that asks again would wait for itself without end.
func TestSettledRequestIsAnsweredLater(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		claim := c[0].claim(h[0], api.Exclusive)
		first := answered(t, c[0].wait(t.Context(), h[0], claim)) // its client does not get the answer
		recursive := raftfsm.Claim{Mutation: c[0].mutation(claim.Mutation), Handle: h[0].Owner.Handle, Mode: api.Exclusive}
		var again, twice <-chan lockAnswer
		m.congested(func() {
			again = c[0].wait(t.Context(), h[0], claim)
			twice = c[0].wait(t.Context(), h[0], recursive)
		})
		if a := answered(t, again); a.err != nil || a.Generation != first.Generation {
			t.Errorf("%v, token %d, was %d", a.err, a.Generation, first.Generation)
		}
		fails(t, answered(t, twice).err, api.LockHeld, "a second request through the handle that holds the lock")
	})
}

// A request for a lock that comes while the Close of its handle is on its way is not granted behind it: its client gets
// the answer that the handle is closed, and would never release the lock.
func TestClosingHandleTakesNoRequest(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[1].try(t, h[1], api.Shared) // so that its Close goes through the log
		claim := c[1].claim(h[1], api.Exclusive)
		closing := c[1].mutation(claim.Mutation)
		entered, leave := m.holdNextEntry()
		closed := later(func() error { return m.Files.Close(t.Context(), closing, h[1]) })
		<-entered
		waits := c[1].wait(t.Context(), h[1], claim)
		trying := raftfsm.Claim{Mutation: c[1].mutation(claim.Mutation, closing), Handle: h[1].Owner.Handle, Mode: api.Exclusive}
		tried := later(func() error { return errOf(m.Locks.TryAcquire(t.Context(), requestFor(trying, h[1]))) })
		synctest.Wait()
		close(leave)
		report(t, <-closed)
		fails(t, <-tried, api.HandleClosed, "TryAcquire")
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
			t.Errorf("Acquire: %v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// A second request through the handle that holds the lock is refused by the log. The log must not
// be asked while the Close of the handle is on its way: the lock would be free when the request is
// applied, and a closed handle would be granted it.
func TestClosingHandleIsNotAskedAbout(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		second := c[0].claim(h[0], api.Exclusive)
		closing := c[0].mutation(second.Mutation)
		waits, closed := c[0].waitAndClose(t, h[0], second, closing)
		report(t, closed)
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
			t.Errorf("the waiter: %v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// If that Close is refused, the log is asked about the request afterwards.
func TestRefusedCloseLetsTheLogBeAsked(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		second := c[0].claim(h[0], api.Exclusive)
		closing := c[0].mutation()
		finishing := c[0].mutation(second.Mutation) // without the number of the Close
		must(m.Locks.Cancel(t.Context(), finishing))(t)
		waits, closed := c[0].waitAndClose(t, h[0], second, closing)
		fails(t, closed, api.InvalidArgument)
		fails(t, answered(t, waits).err, api.LockHeld, "the waiter")
	})
}

// waitAndClose has a client ask for a lock while the log accepts nothing, and then close the
// handle. While the Close is on its way, the clock ticks.
func (c *soloClient) waitAndClose(t *testing.T, h Handle, claim raftfsm.Claim, closing session.Mutation) (waits <-chan lockAnswer, closed error) {
	t.Helper()
	c.m.congested(func() { waits = c.wait(t.Context(), h, claim) })
	entered, leave := c.m.holdNextEntry()
	done := later(func() error { return c.m.Files.Close(t.Context(), closing, h) })
	<-entered
	c.m.timekeeper.tick(c.m.epoch.clock(), 0)
	close(leave)
	return waits, <-done
}

// When sessions end in many commands, the clock loop releases the mutex in between. It names the successors and hands
// the command over under one hold of the mutex. Otherwise a Close could come in between and be first in the log, and
// the command would then grant the lock to a closed handle.
func TestSuccessorIsNamedWhenItsCommandIsHandedOver(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		closing := c[1].mutation(claim.Mutation)

		m.epoch.mu.Lock()
		m.epoch.mu.maxStepsOverride = 64
		for i := range 2 * m.epoch.mu.maxStepsOverride { // sessions that the log does not know
			id := api.SessionID(1<<40 + i)
			m.tables.Outbox.Ends[id] = raftfsm.End{Session: id, Reason: api.ByExpiry}
		}
		m.revocations.ends[c[0].who.Session] = 1 // its end comes after those
		m.revocations.lastLeases.Put(c[0].who.Session, m.epoch.clock())
		m.tables.Queues.Claims = 1 // one command for each of them
		var between atomic.Bool
		m.epoch.mu.held = func(time.Duration) {
			if !strings.Contains(string(debug.Stack()), ".(*timekeeper).tick(") {
				return // a hold of the proposer, for example, which cannot wait for itself
			}
			if between.CompareAndSwap(true, false) {
				report(t, m.Files.Close(t.Context(), closing, h[1]))
			}
		}
		m.epoch.mu.Unlock()
		between.Store(true)
		m.timekeeper.tick(m.epoch.clock(), 0)
		stopIf(t, between.Load(), "the clock loop did not pause")
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
			t.Errorf("the waiter: %v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// A lock that is broken again before its holder has released it is lost once:
// the holder gets one event, and waiters wait for its first acknowledgement.
func TestLockIsLostOnce(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		_, holder, waits, take := contended(t, m)
		take()
		events := holder.hear(t)
		for range 3 {
			take()
		}
		holder.acknowledge(t, events)
		report(t, answered(t, waits).err)
		failIf(t, len(events) != 1 || events[0].Kind != api.EventLockLost, "the holder got the events %v", events)
	})
}

// meanwhile calls do while the next entry is on its way to the log. The log continues when do has returned.
func (s *soloMaster) meanwhile(first, do func()) {
	entered, leave := s.holdNextEntry()
	first()
	<-entered
	do()
	synctest.Wait()
	close(leave)
}

// If the log refuses the first waiter the lock, the one behind it gets the lock
// as soon as that is known: no other event makes room for it.
func TestRefusedByTheLogMakesRoom(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		guarded := c[0].claim(h[0], api.Exclusive)
		guarded.Preconditions = []raftfsm.Precondition{{Lock: "/f", Mode: api.Exclusive, Generation: 1}} // not met
		var refused, waits <-chan lockAnswer
		m.meanwhile(func() { refused = c[0].wait(t.Context(), h[0], guarded) },
			func() { waits = c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive)) })
		fails(t, answered(t, refused).err, api.BadSequencer)
		report(t, answered(t, waits).err)
	})
}

// If the handle of the first waiter is closed, the one behind it gets the lock, if nothing else is in its way.
func TestClosedHandleMakesRoom(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Shared)
		claim := c[1].claim(h[1], api.Exclusive)
		writer := c[1].wait(t.Context(), h[1], claim)
		reader := c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Shared))
		closing := c[1].mutation(claim.Mutation)
		noErr(t, m.Files.Close(t.Context(), closing, h[1]))
		fails(t, answered(t, writer).err, api.HandleClosed)
		report(t, answered(t, reader).err)
	})
}

// Waiters for the lock of a node that is gone are not offered the lock of a later node of that
// name, and waiters of the later node are not offered the lock of the old one.
func TestSuccessorsAreOfOneNode(t *testing.T) {
	for _, oldFirst := range []bool{true, false} {
		withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
			author, id := c[2], h[2]
			noErr(t, author.remove(t.Context(), author.mutation(), id))
			young := c[1].open(t, "/ls/local/f", api.MayCreate).Handle
			var gone, waits <-chan lockAnswer
			old := func() { gone = c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Shared)) }
			fresh := func() { waits = c[1].wait(t.Context(), young, c[1].claim(young, api.Shared)) }
			if oldFirst {
				m.congested(old)
				fresh()
			} else {
				m.congested(func() { fresh(); old() })
			}
			if a := answered(t, waits); a.err != nil || a.Lock != young.Node {
				t.Error(a.err, a.Lock)
			}
			if a := answered(t, gone); !errors.Is(a.err, api.HandleClosed) {
				t.Error(a.err, a.Lock)
			}
		})
	}
}

// The same for a hand-over: a waiter for the lock of a node that is gone would hold another lock by
// a handle that cannot release it.
func TestHandOverIsOfOneNode(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		noErr(t, c[2].remove(t.Context(), c[2].mutation(), h[2]))
		holder, young := c[2].open(t, "/ls/local/f", api.MayCreate).Handle, c[1].open(t, "/ls/local/f", api.MayCreate).Handle
		held := c[2].try(t, holder, api.Exclusive)
		waits := c[1].wait(t.Context(), young, c[1].claim(young, api.Shared))
		var gone <-chan lockAnswer
		m.congested(func() { gone = c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Shared)) })
		noErr(t, m.Locks.Release(t.Context(), c[2].mutation(), holder, held.Generation))
		report(t, answered(t, waits).err)
		if a := answered(t, gone); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) != 1 {
			t.Errorf("%v; the lock is held by %v", a.err, m.holders())
		}
	})
}

// idle are ways in which a client may ask to release a lock that it does not hold, or may ask for too much.
func idle(m *soloMaster) map[string]func(t *testing.T, c *soloClient, h Handle, by session.Mutation) {
	return map[string]func(t *testing.T, c *soloClient, h Handle, by session.Mutation){
		"a Release of another's lock": func(t *testing.T, _ *soloClient, h Handle, by session.Mutation) {
			_ = m.Locks.Release(t.Context(), by, h, 1)
		},
		"a break without the right to it": func(t *testing.T, _ *soloClient, h Handle, by session.Mutation) {
			_ = m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: by, Lock: h.Node, Why: "impatience", Now: true})
		},
		"the end of a session that has the file open": func(t *testing.T, c *soloClient, _ Handle, _ session.Mutation) {
			_ = m.Sessions.End(t.Context(), c.who.Session)
		},
	}
}

// private makes the directory /d: no client may change the ACL of a node in it, or break its lock.
func private(t *testing.T) func(s *raftfsm.State) {
	return func(s *raftfsm.State) {
		root := early(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: make([]byte, 16), Principal: "root", Lease: 12 * time.Second}})
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: root.mutation(), Name: namespace.ACLFile("nobody"), Create: api.MustCreate, Kind: api.File}})
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: root.mutation(), Name: "/d", Create: api.MustCreate, Kind: api.Directory, ACL: api.ACL{Change: "nobody"}}})
	}
}

// A lock is handed over in the entry that frees it, whatever other clients ask for that do not hold
// it: no command that cannot free the lock carries its waiters.
func TestStrangersNameNoSuccessor(t *testing.T) {
	for what := range idle(nil) {
		t.Run(what, func(t *testing.T) {
			inSolo(t, private(t), func(t *testing.T, m *soloMaster) {
				var c []*soloClient
				var h []Handle
				for i := range byte(3) {
					one := m.client(t, i+1)
					go one.keep(t.Context())
					c, h = append(c, one), append(h, one.openEphemeral(t, "/ls/local/d/f"))
				}
				c[1].watches(t, "/ls/local/d/f", api.EventLockVacant, false)
				held := c[0].try(t, h[0], api.Exclusive)
				waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				by, release := c[2].mutation(), c[0].mutation()
				m.together(t, func() { idle(m)[what](t, c[2], h[2], by) },
					func() {
						report(t, m.Locks.Release(t.Context(), release, h[0], held.Generation))
					})
				report(t, answered(t, waits).err)
				if told := c[1].vacated(); len(told) > 0 {
					t.Errorf("the lock was never vacant, and there are events with tokens %v", told)
				}
			})
		})
	}
}

// A client that asks for that again and again does not keep waiters from a free lock.
func TestStrangersKeepNobodyFromAFreeLock(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		var asked atomic.Bool   // it has asked often enough
		m.applying.set(func() { // there is always such a request on its way
			if !asked.Load() {
				by := c[2].mutation()
				go func() { _ = m.Locks.Release(t.Context(), by, h[2], 1) }()
				time.Sleep(time.Millisecond + 7*time.Nanosecond) // never together with a tick of the clock
			}
		})
		for round := range 4 {
			held := c[0].try(t, h[0], api.Exclusive)
			waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
			time.Sleep(time.Duration(round)*time.Millisecond + 500*time.Microsecond)
			noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], held.Generation))
			time.Sleep(5 * time.Second)
			stopIf(t, stillAsks(waits), "it waits in vain; the lock is held by %v", m.holders())
			got := <-waits
			noErr(t, m.Locks.Release(t.Context(), c[1].mutation(), h[1], got.Generation))
		}
		asked.Store(true)
		synctest.Wait()
	})
}
