package master

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A Release that was refused before the log has no effect: the waiter stays in
// the queue, and gets the lock with the retry.
func TestRefusedRelease(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		got := c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		release := c[0].mutation()
		m.congested(func() {
			mustFail(t, m.Locks.Release(t.Context(), release, h[0], got.Generation), api.Unavailable)
		})
		noErr(t, m.Locks.Release(t.Context(), release, h[0], got.Generation))
		report(t, answered(t, waits).err)
	})
}

// A Close that was refused before the log has closed nothing. Its retry is answered only when the lock is free and
// those that wait through the handle have their answers.
func TestRefusedClose(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		own := c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
		for i := range h {
			if i == 1 {
				continue
			}
			closing := c[i].mutation()
			closing.Outstanding = nil
			for n := api.RequestNumber(1); n <= closing.Number; n++ {
				closing.Outstanding = append(closing.Outstanding, n) // its request for the lock is outstanding, too
			}
			m.congested(func() {
				mustFail(t, m.Files.Close(t.Context(), closing, h[i]), api.Unavailable)
			})
			report(t, m.Files.Use(h[i], namespace.ToWrite, false), "after a Close that was refused")
			noErr(t, m.Files.Close(t.Context(), closing, h[i]))
			fails(t, m.Files.Use(h[i], namespace.ToWrite, false), api.HandleClosed, "after Close")
		}
		if a := answered(t, waits); a.err != nil || len(m.holders()) != 1 || m.holders()[0].Owner != h[1].Owner {
			t.Errorf("%v, holders %v", a.err, m.holders())
		}
		fails(t, answered(t, own).err, api.HandleClosed, "a waiter whose handle was closed")
	})
}

// While the Close of a handle is on its way, its waiters are not offered the lock: a closed handle would hold it. Of two copies of the
// Close, one may be refused for lack of room: until both have ended, the waiters are offered nothing.
func TestClosingHandleIsOfferedNothing(t *testing.T) {
	for _, refused := range []bool{false, true} {
		withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
			got := c[0].try(t, h[0], api.Exclusive)
			claim := c[1].claim(h[1], api.Exclusive)
			waits := c[1].wait(t.Context(), h[1], claim)
			closing := c[1].mutation(claim.Mutation)
			entered, leave := m.holdNextEntry()
			closed := later(func() error { return m.Files.Close(t.Context(), closing, h[1]) })
			<-entered
			if refused {
				m.congested(func() {
					fails(t, m.Files.Close(t.Context(), closing, h[1]), api.Unavailable)
				})
			}
			released := later(func() error { return m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation) })
			synctest.Wait()
			close(leave)
			report(t, <-closed)
			report(t, <-released)
			if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
				t.Errorf("the waiter: %v; the lock is held by %v", a.err, m.holders())
			}
		})
	}
}

// A granted Acquire is answered with the grant, whatever would refuse it now.
func TestGrantedIsNotRefused(t *testing.T) {
	inSolo(t, quota(t, api.Quota{Waiters: 1}), func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		claim := c[0].claim(h[0], api.Exclusive)
		first := answered(t, c[0].wait(t.Context(), h[0], claim)) // its client does not get the answer
		c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		again := answered(t, c[0].wait(t.Context(), h[0], claim))
		if again.err != nil || again.Generation != first.Generation {
			t.Errorf("the quota of waiters is used up: %v, token %d, was %d", again.err, again.Generation, first.Generation)
		}
		other := c[2].claim(h[2], api.Exclusive)
		fails(t, answered(t, c[2].wait(t.Context(), h[2], other)).err, api.QuotaExceeded, "a second waiter")
		// The other copies get the same answer, though there is room by now.
		if _, err := m.Locks.Cancel(t.Context(), session.Mutation{Session: c[1].who.Session, Number: c[1].number, HighestIssued: c[1].number, Outstanding: []api.RequestNumber{c[1].number}}); err != nil {
			t.Fatal(err)
		}
		fails(t, answered(t, c[2].wait(t.Context(), h[2], other)).err, api.QuotaExceeded, "a copy of the refused request")
	})
}

// Every stream of a request gets the answer, so the newest does, too.
func TestEveryStreamIsAnswered(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		var streams []<-chan lockAnswer
		for range 3 {
			streams = append(streams, c[1].wait(t.Context(), h[1], claim))
		}
		noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation))
		for _, one := range streams {
			report(t, answered(t, one).err)
		}
	})
}

// TryAcquire overtakes no waiter: while a writer waits, a reader's TryAcquire does not join the readers.
func TestTryAcquireOvertakesNobody(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		got := c[0].try(t, h[0], api.Shared)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		if _, err := m.Locks.TryAcquire(t.Context(), requestFor(c[2].claim(h[2], api.Shared), h[2])); !errors.Is(err, api.LockHeld) {
			t.Errorf("a reader who came after a writer: %v", err)
		}
		noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation))
		report(t, answered(t, waits).err)
	})
}

// The master tells a client that its session has expired only after the log says so: if this master cannot commit it,
// the session is alive for a later one.
func TestExpiredIsWhatTheLogSays(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		f := c.open(t, "/ls/local/f", api.MayCreate).Handle
		calls := map[string]func() error{
			"any call":  func() error { return m.Sessions.Admit(c.who) },
			"KeepAlive": func() error { _, err := m.Sessions.KeepAlive(t.Context(), c.who, c.heard(), nil); return err },
		}
		m.congested(func() {
			time.Sleep(20 * time.Second) // its lease runs out, and the end cannot be proposed
			for name, call := range calls {
				if err := call(); !errors.Is(err, api.Unavailable) {
					t.Errorf("%s before its end has committed: %v", name, err)
				}
			}
		})
		time.Sleep(time.Second)
		for name, call := range calls {
			if err := call(); !errors.Is(err, api.SessionExpired) {
				t.Errorf("%s after its end has committed: %v", name, err)
			}
		}
		fails(t, m.Files.Use(f, namespace.ToWrite, false), api.SessionExpired)
	})
}

// contended has a client hold the lock that the second of the others waits for. take breaks the lock.
func contended(t *testing.T, m *soloMaster) (h []Handle, holder *soloClient, waits <-chan lockAnswer, take func()) {
	t.Helper()
	c, h := lockers(t, m)
	holder = m.client(t, 9)
	mine := holder.open(t, "/ls/local/f", api.MustExist).Handle
	holder.try(t, mine, api.Exclusive)
	waits = c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
	return h, holder, waits, func() {
		t.Helper()
		noErr(t, m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: c[0].mutation(), Lock: mine.Node, Why: "try"}))
	}
}

// A holder that has released a revoked lock sends no further acknowledgement. If the log has no
// room for the eviction then, the waiters need not wait for the holder's next KeepAlive.
func TestRefusedEviction(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		h, holder, waits, take := contended(t, m)
		take()
		events := holder.hear(t)
		m.congested(func() { holder.acknowledge(t, events) })
		if a := answered(t, waits); a.err != nil || len(m.holders()) != 1 || m.holders()[0].Owner != h[1].Owner {
			t.Errorf("%v, holders %v", a.err, m.holders())
		}
	})
}

// A client that holds a lock through very many handles is evicted in one command: each command
// looks at all holders, and nothing else is applied meanwhile.
func TestManyHandlesLetGoAtOnce(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		holder := m.client(t, 9)
		var mine Handle
		for range 300 {
			mine = holder.open(t, "/ls/local/f", api.MustExist).Handle
			holder.try(t, mine, api.Shared)
		}
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		var evictions atomic.Int64
		wrote := func(entry []byte) {
			e, err := raftfsm.DecodeEntry(entry)
			report(t, err)
			for _, c := range e.Commands {
				if c.Evict != nil {
					evictions.Add(1)
				}
			}
		}
		m.wrote.Store(&wrote)
		noErr(t, m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: c[0].mutation(), Lock: mine.Node, Why: "try"}))
		holder.acknowledge(t, holder.hear(t))
		if a := answered(t, waits); a.err != nil || len(m.holders()) != 1 || m.holders()[0].Owner != h[1].Owner {
			t.Errorf("%v, holders %v", a.err, m.holders())
		}
		equal(t, evictions.Load(), 1, "%d commands took the lock from one session")
	})
}

// A refused Open makes no node when a copy of it reaches another master, which has no reason to refuse it.
func TestRefusedOpenMakesNothingLater(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		q := c[0].asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate, Kind: api.Directory})
		ask := func() error { return errOf(m.Files.Open(t.Context(), q)) }
		mustFail(t, ask(), api.NotDirectory)
		noErr(t, c[1].remove(t.Context(), c[1].mutation(), h[1]))
		m.locked(func() { *m.tables.Handles = *tables.New(func() {}, 0).Handles }) // as at another master
		fails(t, ask(), api.NotDirectory, "a late copy of the refused Open")
	})
}

// The end of a session is in the log, and the master has not observed it yet: a call of that
// session is answered that the session has ended, not that its number is finished.
func TestCallsOfASessionThatHasJustEnded(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		f := c.open(t, "/ls/local/f", api.MayCreate).Handle
		ended := *m.fsm.Load()
		with(t, &ended, raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: c.who.Session, Reason: api.ByOperator}}}})
		m.fsm.Store(&ended)
		fails(t, errOf(m.Files.Open(t.Context(), c.asked("/ls/local/f", raftfsm.Open{}))), api.SessionExpired, "open")
		fails(t, errOf(m.Locks.Acquire(t.Context(), requestFor(c.claim(f, api.Exclusive), f))), api.SessionExpired, "acquire")
	})
}

// Copies of a request for a lock may arrive in any order, and the last may be one that its client has given up long
// ago. When its stream ends, the other streams keep the request's place, and each gets the answer.
func TestEveryStreamStandsForItsRequest(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		late, stop := context.WithCancel(t.Context())
		given := c[1].wait(late, h[1], claim)
		stop()
		mustFail(t, answered(t, given).err, api.Uncertain)
		next := c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
		time.Sleep(time.Minute) // longer than the place of an absent waiter is kept
		noErr(t, m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation))
		report(t, answered(t, waits).err)
		select {
		case a := <-next:
			t.Errorf("a later request: %v", a.err)
		default:
		}
	})
}

// A waiter whose handle was closed gets its refusal after the log has refused it. Otherwise a late
// copy of its request could be granted by the next master, which would make the handle again.
func TestWaiterOfAClosedHandleIsRefusedByTheLog(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		closing := c[1].mutation(claim.Mutation)
		m.applying.once(func() {
			m.epoch.proposer.mu.Lock()
			defer m.epoch.proposer.mu.Unlock()
			m.epoch.proposer.closed = api.Errorf(api.Unavailable, "too much waits") // for the refusal, at first
		})
		noErr(t, m.Files.Close(t.Context(), closing, h[1]))
		failIf(t, !stillAsks(waits), "it got a refusal that is not in the log")
		m.congested(func() {}) // from now on there is room
		fails(t, answered(t, waits).err, api.HandleClosed)
		failIf(t, !m.Master.epoch.isAnswered(claim.Mutation), "the log knows nothing of the refusal")
	})
}

func stillAsks(waits <-chan lockAnswer) bool {
	synctest.Wait()
	return len(waits) == 0
}
