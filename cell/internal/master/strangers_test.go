package master

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// idle are ways in which a client may ask to release a lock that it does not hold, or may ask for
// too much.
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
		r := with(t, s, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: make([]byte, 16), Principal: "root", Lease: 12 * time.Second}})
		by := func(n api.RequestNumber) session.Mutation {
			return session.Mutation{Session: r[0].Session, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: 1}
		}
		with(t, s, raftfsm.Command{Open: &raftfsm.Open{Mutation: by(1), Name: namespace.ACLFile("nobody"), Create: api.MustCreate, Kind: api.File}},
			raftfsm.Command{Open: &raftfsm.Open{Mutation: by(2), Name: "/d", Create: api.MustCreate, Kind: api.Directory, ACL: api.ACL{Change: "nobody"}}})
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
				c[1].watchLock(t, "/ls/local/d/f")
				held := c[0].try(t, h[0], api.Exclusive)
				waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
				by, release := c[2].mutation(), c[0].mutation()
				m.together(t, func() { idle(m)[what](t, c[2], h[2], by) },
					func() {
						if err := m.Locks.Release(t.Context(), release, h[0], held.Generation); err != nil {
							t.Error(err)
						}
					})
				if a := answered(t, waits); a.err != nil {
					t.Error(a.err)
				}
				if told := c[1].vacated(); len(told) > 0 {
					t.Errorf("the lock was never vacant, and there are events with tokens %v", told)
				}
			})
		})
	}
}

// A client that asks for that again and again does not keep waiters from a free lock.
func TestStrangersKeepNobodyFromAFreeLock(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		var asked atomic.Bool // it has asked often enough
		m.applying = func() { // there is always such a request on its way
			if !asked.Load() {
				by := c[2].mutation()
				go func() { _ = m.Locks.Release(t.Context(), by, h[2], 1) }()
				time.Sleep(time.Millisecond + 7*time.Nanosecond) // never together with a tick of the clock
			}
		}
		for round := range 4 {
			held := c[0].try(t, h[0], api.Exclusive)
			waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
			time.Sleep(time.Duration(round)*time.Millisecond + 500*time.Microsecond)
			if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], held.Generation); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if stillAsks(waits) {
				t.Fatalf("it waits in vain; the lock is held by %v", m.holders())
			}
			got := <-waits
			if err := m.Locks.Release(t.Context(), c[1].mutation(), h[1], got.Generation); err != nil {
				t.Fatal(err)
			}
		}
		asked.Store(true)
		synctest.Wait()
	})
}
