package master

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// unobserved is the log of a solo master that gets the results late.
type unobserved struct {
	*soloMaster
	applied func(e raftfsm.Entry)
}

func (u unobserved) Append(data []byte) ([]raftfsm.Result, error) {
	results, err := u.soloMaster.Append(data)
	e, broken := raftfsm.DecodeEntry(data)
	if broken != nil {
		panic(broken)
	}
	u.applied(e)
	return results, err
}

// Two clients hold a lock together, and each fails. When the first delay has ended, the end of the second session has
// been applied, and the master has not observed it yet. The state shows the second delay already, and it has to run its
// own full time.
func TestDelayOfTheSecondHolder(t *testing.T) {
	const delay = 3 * time.Second
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		a, b, w := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		claim := func(c *soloClient, h Handle, mode api.LockMode, delay time.Duration) raftfsm.Claim {
			return raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: mode, Delay: delay}
		}
		for _, c := range []*soloClient{a, b} {
			h := c.open(t, "/ls/local/f", api.MayCreate).Handle
			must(m.Locks.TryAcquire(t.Context(), requestFor(claim(c, h, api.Shared, delay), h)))(t)
		}
		h := w.open(t, "/ls/local/f", api.MayCreate).Handle
		granted := make(chan session.Instant, 1)
		go func() {
			report(t, errOf(m.Locks.Acquire(t.Context(), requestFor(claim(w, h, api.Exclusive, 0), h))))
			granted <- m.epoch.clock()
		}()
		synctest.Wait()
		expire := func(c *soloClient) {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			m.tables.Leases.Stop(c.who.Session)
			one, _ := m.Locks.offers.endCommand([]raftfsm.End{{Session: c.who.Session, Reason: api.ByExpiry}})
			m.epoch.submit(one)
		}
		expire(a)
		synctest.Wait()
		<-time.After(delay - time.Millisecond)
		m.epoch.proposer.entries.log = unobserved{m, func(e raftfsm.Entry) {
			if e.Commands[0].EndSessions != nil {
				<-time.After(2 * time.Millisecond) // the first delay ends meanwhile
			}
		}}
		ended := m.epoch.clock()
		expire(b)
		if held := (<-granted).Sub(ended); held < delay {
			t.Errorf("a writer has the lock %v after a holder with a lock-delay of %v failed", held, delay)
		}
	})
}

// A master that takes over times the lock-delays that it finds, each in full: before its end nobody has the lock, and then the
// waiter has it.
func TestDelayThatATakeoverFindsEnds(t *testing.T) {
	const delay = 7 * time.Second
	leave := func(s *raftfsm.State) {
		s.Tree.RestoreDelay("/f", namespace.Delay{ID: 1, Mode: api.Exclusive, For: delay})
	}
	inSolo(t, leave, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		h := c.open(t, "/ls/local/f", api.MayCreate).Handle
		began := time.Now()
		within, cancel := context.WithTimeout(t.Context(), 3*delay)
		defer cancel()
		acquire := raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: api.Exclusive}
		_, err := m.Locks.Acquire(within, requestFor(acquire, h))
		if waited := time.Since(began); err != nil || waited < delay-time.Second || waited > delay+time.Second {
			t.Errorf("Acquire returned %v after %v, want the lock after %v", err, waited, delay)
		}
	})
}

// vacated returns the tokens of its events that a lock is vacant.
func (c *soloClient) vacated() (tokens []api.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.told {
		if e.Kind == api.EventLockVacant {
			tokens = append(tokens, e.Generation)
		}
	}
	return tokens
}

// vacancies returns the number of those events.
func (c *soloClient) vacancies() int { return len(c.vacated()) }

// There is one event that a lock is vacant: when the last of its shared holders has released it,
// even if several release in one entry.
func TestVacancyIsToldOnce(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[2].watches(t, "/ls/local/f", api.EventLockVacant, false)
		got := c[0].try(t, h[0], api.Shared)
		c[1].try(t, h[1], api.Shared)
		entered, leave := m.holdNextEntry()
		done := make(chan error, 3)
		other := c[2].open(t, "/ls/local/f", api.MustExist).Handle
		go func() { done <- m.Locks.Release(t.Context(), c[2].mutation(), other, got.Generation) }() // it delays the others
		<-entered
		for i := range 2 {
			release := c[i].mutation()
			go func() { done <- m.Locks.Release(t.Context(), release, h[i], got.Generation) }()
		}
		synctest.Wait()
		close(leave)
		for range 3 {
			<-done
		}
		time.Sleep(time.Second)
		if n := c[2].vacancies(); n != 1 || len(m.holders()) > 0 {
			t.Errorf("told %d times; held by %v", n, m.holders())
		}
	})
}

// There is one event for each time that the lock was vacant, in the order of the log, though more
// may have happened when it is sent. It is also sent if the named successor ended in the same
// entry, and it never has the token of a later holder.
func TestVacanciesAreToldInTheirOrder(t *testing.T) {
	for what, waits := range map[string]bool{"handed over": true, "tried for": false} {
		t.Run(what, func(t *testing.T) {
			withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
				c[2].watches(t, "/ls/local/f", api.EventLockVacant, false)
				first := c[0].try(t, h[0], api.Exclusive)
				if waits {
					c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				}
				m.together(t, func() { _ = m.Locks.Release(t.Context(), c[0].mutation(), h[0], first.Generation) }, func() {
					if !waits {
						_, _ = m.Locks.TryAcquire(t.Context(), requestFor(c[1].claim(h[1], api.Exclusive), h[1]))
					}
				}, func() { _ = m.Sessions.End(t.Context(), c[1].who.Session) })
				time.Sleep(time.Second)
				last, _ := m.epoch.state().Tree.Get("/f")
				want := []api.Generation{first.Generation, last.Lock}
				if waits {
					want = want[1:]
				}
				if got := c[2].vacated(); !slices.Equal(got, want) || len(m.holders()) > 0 || last.Lock == first.Generation {
					t.Errorf("events with tokens %v, want %v; held by %v", got, want, m.holders())
				}
			})
		})
	}
}

// together puts requests, in their order, into one entry.
func (s *soloMaster) together(t *testing.T, requests ...func()) {
	t.Helper()
	entered, leave := s.holdNextEntry()
	var done sync.WaitGroup
	done.Go(func() { _ = s.Sessions.End(t.Context(), 1<<40) }) // an unknown session: it delays the others
	<-entered
	for _, request := range requests {
		done.Go(request)
		synctest.Wait()
	}
	close(leave)
	done.Wait()
}

// There is an event, too, if another shared holder has failed before, so that a lock-delay runs.
func TestVacancyUnderADelayIsTold(t *testing.T) {
	withLockers(t, func(t *testing.T, m *soloMaster, c []*soloClient, h []Handle) {
		c[2].watches(t, "/ls/local/f", api.EventLockVacant, false)
		claim := c[0].claim(h[0], api.Shared)
		claim.Delay = 30 * time.Second
		must(m.Locks.TryAcquire(t.Context(), requestFor(claim, h[0])))(t)
		got := c[1].try(t, h[1], api.Shared)
		noErr(t, m.Sessions.Expire(t.Context(), c[0].who.Session))
		time.Sleep(time.Second)
		equal(t, c[2].vacancies(), 0, "told %d times while one holds it")
		noErr(t, m.Locks.Release(t.Context(), c[1].mutation(), h[1], got.Generation))
		for _, later := range []time.Duration{time.Second, time.Minute} { // once, and not again when the delay has ended
			time.Sleep(later)
			if n := c[2].vacancies(); n != 1 || len(m.holders()) > 0 {
				t.Errorf("told %d times; held by %v", n, m.holders())
			}
		}
	})
}

// Readers may share a lock on which a failed reader left a delay. They do not wait for the end of
// the delay, whether or not the entry that ends the session names them.
func TestReadersDoNotWaitForTheDelayOfAReader(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		failing, breaking, reading := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		go breaking.keep(t.Context())
		go reading.keep(t.Context())
		var waits []<-chan lockAnswer
		for _, path := range []string{"/ls/local/e", "/ls/local/f"} {
			h := failing.open(t, path, api.MayCreate).Handle
			claim := failing.claim(h, api.Shared)
			claim.Delay = time.Minute
			must(m.Locks.TryAcquire(t.Context(), requestFor(claim, h)))(t)
			if err := m.Locks.Break(t.Context(), raftfsm.Revoke{Mutation: breaking.mutation(), Lock: h.Node, Why: "so that others wait"}); err != nil {
				t.Fatal(err)
			}
			mine := reading.open(t, path, api.MustExist).Handle
			waits = append(waits, reading.wait(t.Context(), mine, reading.claim(mine, api.Shared)))
		}
		m.locked(func() { m.tables.Queues.Claims = 1 }) // there is room for the waiters of one lock
		noErr(t, m.Sessions.Expire(t.Context(), failing.who.Session))
		time.Sleep(time.Second)
		for i, wait := range waits {
			if stillAsks(wait) {
				t.Errorf("the reader of lock %d waits for the delay", i)
				continue
			}
			got := <-wait
			if err := m.Locks.Release(t.Context(), reading.mutation(), Handle{Owner: namespace.Owner{Session: reading.who.Session, Handle: got.Handle}, Node: got.Lock}, got.Generation); err != nil {
				t.Fatal(err)
			}
			told, err := m.Inspector.Explain(t.Context(), got.Lock.Name)
			if err != nil || !strings.Contains(told.Sentences[0], "in shared mode only for another 59s") {
				t.Error(err, told.Sentences)
			}
		}
	})
}
