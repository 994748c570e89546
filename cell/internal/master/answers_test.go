package master

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A Release that was refused before the log has no effect: the waiter stays in
// the queue, and gets the lock with the retry.
func TestRefusedRelease(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		release := c[0].mutation()
		m.congested(func() {
			if err := m.Locks.Release(t.Context(), release, h[0], got.Generation); !errors.Is(err, api.Unavailable) {
				t.Fatal(err)
			}
		})
		if err := m.Locks.Release(t.Context(), release, h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
	})
}

// A Close that was refused before the log has closed nothing. Its retry is
// answered only when the lock is free and those that wait through the handle
// have their answers.
func TestRefusedClose(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
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
				if err := m.Files.Close(t.Context(), closing, h[i]); !errors.Is(err, api.Unavailable) {
					t.Fatal(err)
				}
			})
			if err := m.Files.Use(h[i], namespace.ToWrite, false); err != nil {
				t.Errorf("after a Close that was refused: %v", err)
			}
			if err := m.Files.Close(t.Context(), closing, h[i]); err != nil {
				t.Fatal(err)
			}
			if err := m.Files.Use(h[i], namespace.ToWrite, false); !errors.Is(err, api.HandleClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
		if a := answered(t, waits); a.err != nil || len(m.holders()) != 1 || m.holders()[0].Owner != h[1].Owner {
			t.Errorf("%v, holders %v", a.err, m.holders())
		}
		if a := answered(t, own); !errors.Is(a.err, api.HandleClosed) {
			t.Errorf("a waiter whose handle was closed: %v", a.err)
		}
	})
}

// While the Close of a handle is on its way, its waiters are not offered the
// lock: a closed handle would hold it.
func TestClosingHandleIsOfferedNothing(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], claim)
		closing := c[1].mutation()
		closing.Outstanding = []api.RequestNumber{claim.Mutation.Number, closing.Number}
		entered, leave := make(chan struct{}), make(chan struct{})
		m.applying = func() {
			m.applying = nil
			close(entered)
			<-leave
		}
		done := make(chan error, 2)
		go func() { done <- m.Files.Close(t.Context(), closing, h[1]) }()
		<-entered
		go func() { done <- m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation) }()
		synctest.Wait()
		close(leave)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if a := answered(t, waits); !errors.Is(a.err, api.HandleClosed) || len(m.holders()) > 0 {
			t.Errorf("the waiter: %v; the lock is held by %v", a.err, m.holders())
		}
	})
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
		if a := answered(t, c[2].wait(t.Context(), h[2], other)); !errors.Is(a.err, api.QuotaExceeded) {
			t.Errorf("a second waiter: %v", a.err)
		}
		// The other copies get the same answer, though there is room by now.
		if _, err := m.Locks.Cancel(t.Context(), session.Mutation{Session: c[1].who.Session, Number: c[1].number, HighestIssued: c[1].number, Outstanding: []api.RequestNumber{c[1].number}}); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, c[2].wait(t.Context(), h[2], other)); !errors.Is(a.err, api.QuotaExceeded) {
			t.Errorf("a copy of the refused request: %v", a.err)
		}
	})
}

// Every stream of a request gets the answer, so the newest does, too.
func TestEveryStreamIsAnswered(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		claim := c[1].claim(h[1], api.Exclusive)
		var streams []<-chan lockAnswer
		for range 3 {
			streams = append(streams, c[1].wait(t.Context(), h[1], claim))
		}
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		for _, one := range streams {
			if a := answered(t, one); a.err != nil {
				t.Error(a.err)
			}
		}
	})
}

// TryAcquire overtakes no waiter: while a writer waits, a reader's TryAcquire
// does not join the readers.
func TestTryAcquireOvertakesNobody(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Shared)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		if _, err := m.Locks.TryAcquire(t.Context(), requestFor(c[2].claim(h[2], api.Shared), h[2])); !errors.Is(err, api.LockHeld) {
			t.Errorf("a reader who came after a writer: %v", err)
		}
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		if a := answered(t, waits); a.err != nil {
			t.Error(a.err)
		}
	})
}

// A holder that asked for events about conflicting requests gets one, too, if
// the lock was handed over to it while others were waiting (Chubby §2.5).
func TestSuccessorHearsOfConflict(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		q := c[1].asked("/ls/local/f", raftfsm.Open{})
		q.Handle.Events = EventSet(0).With(api.EventConflictingLock)
		o, err := m.Files.Open(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		second := c[1].wait(t.Context(), o.Handle, c[1].claim(o.Handle, api.Exclusive))
		c[2].wait(t.Context(), h[2], c[2].claim(h[2], api.Exclusive))
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); err != nil {
			t.Fatal(err)
		}
		answered(t, second)
		if n := len(c[1].conflicts()); n != 1 {
			t.Errorf("told %d times; want once", n)
		}
	})
}

// The master tells a client that its session has expired only after the log
// says so: if this master cannot commit it, the session is alive for a later
// one.
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
		if err := m.Files.Use(f, namespace.ToWrite, false); !errors.Is(err, api.SessionExpired) {
			t.Error(err)
		}
	})
}

// contended has a client hold the lock that the second of the others waits for. take breaks the
// lock.
func contended(t *testing.T, m *soloMaster) (h []Handle, holder *soloClient, waits <-chan lockAnswer, take func()) {
	t.Helper()
	c, h := lockers(t, m)
	holder = m.client(t, 9)
	mine := holder.open(t, "/ls/local/f", api.MustExist).Handle
	holder.try(t, mine, api.Exclusive)
	waits = c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
	return h, holder, waits, func() {
		t.Helper()
		if err := m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: c[0].mutation(), Lock: mine.Node, Why: "try"}); err != nil {
			t.Fatal(err)
		}
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
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
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
			if err != nil {
				t.Error(err)
			}
			for _, c := range e.Commands {
				if c.Evict != nil {
					evictions.Add(1)
				}
			}
		}
		m.wrote.Store(&wrote)
		if err := m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: c[0].mutation(), Lock: mine.Node, Why: "try"}); err != nil {
			t.Fatal(err)
		}
		holder.acknowledge(t, holder.hear(t))
		if a := answered(t, waits); a.err != nil || len(m.holders()) != 1 || m.holders()[0].Owner != h[1].Owner {
			t.Errorf("%v, holders %v", a.err, m.holders())
		}
		if n := evictions.Load(); n != 1 {
			t.Errorf("%d commands took the lock from one session", n)
		}
	})
}

// A refused Open makes no node when a copy of it reaches another master, which
// has no reason to refuse it.
func TestRefusedOpenMakesNothingLater(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		mutation := c[0].mutation()
		ask := func() error {
			_, err := m.Files.Open(t.Context(), OpenRequest{
				Mutation: mutation, Path: api.MustParsePath("/ls/local/f"),
				Handle: Handle{Owner: namespace.Owner{Session: mutation.Session, Handle: api.HandleID(mutation.Number)}, Rights: namespace.ToRead},
				Create: raftfsm.Open{Create: api.MayCreate, Kind: api.Directory, Rights: namespace.ToRead},
			})
			return err
		}
		if err := ask(); !errors.Is(err, api.NotDirectory) {
			t.Fatal(err)
		}
		remove := c[1].mutation()
		if _, err := m.Files.Change(t.Context(), h[1], namespace.ToWrite, remove, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: remove, Node: h[1].Node, Handle: h[1].Owner.Handle}}); err != nil {
			t.Fatal(err)
		}
		m.epoch.mu.Lock()
		*m.tables.handles = *newHandles() // as at another master
		m.epoch.mu.Unlock()
		if err := ask(); !errors.Is(err, api.NotDirectory) {
			t.Errorf("a late copy of the refused Open: %v", err)
		}
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
		mutation := c.mutation()
		if _, err := m.Files.Open(t.Context(), OpenRequest{Mutation: mutation, Path: api.MustParsePath("/ls/local/f"), Handle: Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: 9}}}); !errors.Is(err, api.SessionExpired) {
			t.Errorf("open: %v", err)
		}
		claim := raftfsm.Claim{Mutation: mutation, Handle: f.Owner.Handle, Mode: api.Exclusive}
		if _, err := m.Locks.Acquire(t.Context(), requestFor(claim, f)); !errors.Is(err, api.SessionExpired) {
			t.Errorf("acquire: %v", err)
		}
	})
}
