package master

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

func (s *soloMaster) handlesOf(id api.SessionID) int {
	s.epoch.mu.Lock()
	defer s.epoch.mu.Unlock()
	return s.tables.Handles.Count(id)
}

// quota sets the quota of the clients of a test.
func quota(t *testing.T, allowed api.Quota) func(s *raftfsm.State) {
	return func(s *raftfsm.State) {
		with(t, s, raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: early(t, s, silentSession(99)).mutation(), Principal: "p", Quota: allowed}})
	}
}

// silentSession is cachingSession of one that caches nothing, so that no change waits for it.
func silentSession(nonce byte) raftfsm.Command {
	c := cachingSession(nonce)
	c.CreateSession.MayCache = false
	return c
}

// An Open above the quota of handles is refused before anything is done.
func TestRefusedOpenMakesNothing(t *testing.T) {
	inSolo(t, quota(t, api.Quota{Handles: 1}), func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		c.open(t, "/ls/local/one", api.MayCreate)
		for _, ephemeral := range []bool{false, true} {
			if _, err := m.Files.Open(t.Context(), c.asked("/ls/local/two", raftfsm.Open{Create: api.MayCreate, Ephemeral: ephemeral})); !errors.Is(err, api.QuotaExceeded) {
				t.Errorf("%v", err)
			}
			if _, there := m.epoch.state().Tree.Get("/two"); there {
				t.Error("it was refused, and has made its node")
			}
		}
		equal(t, m.handlesOf(c.who.Session), 1, "%d handles are open")
	})
}

// A copy of an Open that arrives after its handle was closed opens nothing. A copy that arrives after the Open was
// refused is refused, though it could be done by now.
func TestLateCopyOfOpen(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		author, c := m.client(t, 1), m.client(t, 2)
		go c.keep(t.Context())
		author.open(t, "/ls/local/f", api.MayCreate)
		q := c.asked("/ls/local/f", raftfsm.Open{Create: api.MustExist})
		o := must(m.Files.Open(t.Context(), q))(t)
		if again, err := m.Files.Open(t.Context(), q); err != nil || m.handlesOf(c.who.Session) != 1 || again.Handle != o.Handle {
			t.Errorf("a retry: %v, %d handles", err, m.handlesOf(c.who.Session))
		}
		noErr(t, m.Files.Close(t.Context(), c.mutation(), o.Handle))
		if _, err := m.Files.Open(t.Context(), q); !errors.Is(err, api.InvalidArgument) || m.handlesOf(c.who.Session) != 0 {
			t.Errorf("a copy after the handle was closed: %v, %d handles", err, m.handlesOf(c.who.Session))
		}
		absent := c.asked("/ls/local/later", raftfsm.Open{Create: api.MustExist})
		mustFail(t, errOf(m.Files.Open(t.Context(), absent)), api.NotFound)
		author.open(t, "/ls/local/later", api.MayCreate)
		if _, err := m.Files.Open(t.Context(), absent); !errors.Is(err, api.NotFound) || m.handlesOf(c.who.Session) != 0 {
			t.Errorf("a copy after it was refused: %v, %d handles", err, m.handlesOf(c.who.Session))
		}
	})
}

// No handle is entered for a session that has ended meanwhile.
func TestOpenOfAnEndedSession(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.client(t, 1).open(t, "/ls/local/f", api.MayCreate)
		c := m.client(t, 2)
		m.proving.once(func() {
			report(t, m.Sessions.End(t.Context(), c.who.Session))
		})
		fails(t, errOf(m.Files.Open(t.Context(), c.asked("/ls/local/f", raftfsm.Open{}))), api.SessionExpired)
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if _, known := m.tables.Handles.Of[c.who.Session]; known || m.tables.Handles.Used.Of[""] > 0 || m.tables.Handles.Used.Of["p"] != 1 {
			t.Errorf("known %v, used %v", known, m.tables.Handles.Used)
		}
	})
}

// A retry of a finished Open at a new master makes the handle again, and its
// client gets an event if the node has gone since.
func TestRetriedOpenOfWhatIsGone(t *testing.T) {
	var c soloClient
	var q OpenRequest
	prepare := func(s *raftfsm.State) {
		c.who = Caller{Session: with(t, s, cachingSession(9))[0].Session, Epoch: 1}
		q = c.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate, Name: "/f"})
		q.Create.Mutation = q.Mutation
		done := with(t, s, raftfsm.Command{Open: &q.Create})[0]
		other := soloClient{who: Caller{Session: with(t, s, cachingSession(10))[0].Session}}
		with(t, s, raftfsm.Command{Delete: &raftfsm.Delete{Mutation: other.mutation(), Node: namespace.Ref{Name: "/f", Instance: done.Stat.Instance}}})
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		c.m = m
		must(m.Files.Open(t.Context(), q))(t)
		for _, e := range c.hear(t) {
			if e.Kind == api.EventHandleInvalid && e.Handle == api.HandleID(q.Mutation.Number) {
				return
			}
		}
		t.Error("nothing says that the node is gone")
	})
}

// A master remembers which handles of earlier epochs were closed, as many as a client can have had. They do not count
// as open. If there are more, the master makes no others again, but closing them still releases what they hold.
func TestHandlesOfEarlierEpochs(t *testing.T) {
	var c *soloClient
	var ephemeral, file Handle
	prepare := func(s *raftfsm.State) {
		c = early(t, s, cachingSession(9))
		for name, h := range map[string]*Handle{"/e": &ephemeral, "/f": &file} {
			q := c.asked("/ls/local"+name, raftfsm.Open{Create: api.MayCreate, Name: api.Name(name), Ephemeral: name == "/e"})
			q.Create.Mutation = q.Mutation
			done := with(t, s, raftfsm.Command{Open: &q.Create})[0]
			*h = q.Handle
			h.Node, h.Ephemeral = namespace.Ref{Name: api.Name(name), Instance: done.Stat.Instance}, name == "/e"
		}
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		c.m = m
		go c.keep(t.Context())
		c.number = 2 * api.MaxHandles
		old := file
		for i := range api.MaxHandles {
			old.Owner.Handle = api.HandleID(i + 3)
			noErr(t, m.Files.Close(t.Context(), c.mutation(), old))
		}
		fails(t, errOf(m.Files.Read(t.Context(), old, namespace.ToRead)), api.HandleClosed, "a closed handle")
		equal(t, m.handlesOf(c.who.Session), 0, "%d handles are open")
		c.open(t, "/ls/local/f", api.MustExist)
		fails(t, errOf(m.Files.Read(t.Context(), ephemeral, namespace.ToRead)), api.QuotaExceeded, "one more than there can be")
		report(t, m.Files.Close(t.Context(), c.mutation(), ephemeral))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if node, there := m.epoch.state().Tree.Get("/e"); there {
			t.Errorf("its handle was closed: %+v", node)
		}
		m.epoch.mu.Lock()
		defer m.epoch.mu.Unlock()
		if n := len(m.tables.Handles.Of[c.who.Session].Earlier); n > api.MaxHandles {
			t.Errorf("%d are remembered", n)
		}
	})
}

// Close asks the log whether a handle holds something, and not the table of handles.
func TestCloseGoesByTheLog(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("known=%v", known), func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				c := m.client(t, 1)
				h := c.open(t, "/ls/local/f", api.MayCreate).Handle
				c.try(t, h, api.Exclusive)
				if !known {
					m.locked(func() { m.tables.Handles.Close(h.Owner) })
				}
				noErr(t, m.Files.Close(t.Context(), c.mutation(), h))
				if node, _ := m.epoch.state().Tree.Get("/f"); len(node.Holders) > 0 {
					t.Errorf("closed, and held: %+v", node)
				}
			})
		})
	}
}

// A client has declared, with a call that needs no entry, that it has the answer to an Open. A late copy of the Open is
// refused: the log does not know of the declaration, and would answer the copy again.
func TestLateCopyOfLoggedOpen(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		r := c.asked("/ls/local/f", raftfsm.Open{Create: api.MayCreate, Kind: api.File})
		must(m.Files.Open(t.Context(), r))(t)
		c.open(t, "/ls/local/acl/everyone", api.MustExist) // declares that the first is finished
		entries := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m.applying.set(func() {
			if entries++; entries > 10 {
				cancel()
			}
		})
		if _, err := m.Files.Open(ctx, r); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("%v, after %d entries", err, entries)
		}
	})
}

// A handle is on one node, whatever the client asked earlier masters for under its number: the name
// of the handle is all that says what it holds.
func TestHandleIsOnOneNode(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c := m.client(t, 1)
		owner := namespace.Owner{Session: c.who.Session, Handle: 1000}
		for i, path := range []string{"/ls/local/a", "/ls/local/b", "/ls/local/a"} {
			h := c.open(t, path, api.MayCreate).Handle
			h.Owner, h.Epoch = owner, 0 // of an earlier master
			mutation := c.mutation()
			claim := raftfsm.Claim{Mutation: mutation, Handle: owner.Handle, Mode: api.Exclusive}
			_, err := m.Locks.TryAcquire(t.Context(), requestFor(claim, h))
			if want := []error{nil, api.HandleClosed, api.LockHeld}[i]; !errors.Is(err, want) {
				t.Errorf("the lock of %s: %v, want %v", path, err, want)
			}
		}
	})
}

// Chubby §2.9, step 8: a handle of an earlier master is made again when it is used. It stays closed once it was closed
// in this epoch, whatever arrives late.
func TestHandleOfAnEarlierEpoch(t *testing.T) {
	var c *soloClient
	inSolo(t, func(s *raftfsm.State) { c = early(t, s, cachingSession(9)) }, func(t *testing.T, m *soloMaster) {
		c.m = m
		node, _ := m.epoch.state().Tree.Get("/acl/everyone")
		h := Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: 1}, Node: node.Ref(), Rights: namespace.ToRead, Epoch: 0}
		must(m.Files.Read(t.Context(), h, namespace.ToRead))(t)
		noErr(t, m.Files.Close(t.Context(), c.mutation(), h))
		fails(t, errOf(m.Files.Read(t.Context(), h, namespace.ToRead)), api.HandleClosed, "after it was closed")
	})
}

// When the cell comes to the level of proofs, sequencers of locks that are held go on without one, for as long as they are held. What was invented, and what is
// of a later grant and has no proof, gets one answer, whatever there is; but a session that may look at the lock itself needs none.
func TestProofsOfSequencers(t *testing.T) {
	var id api.SessionID
	prepare := func(s *raftfsm.State) {
		s.Level = 2
		id = with(t, s, cachingSession(1))[0].Session
		holding(t, s, id, "/before")
		one, _ := s.Sessions.Get(id)
		n := one.HighestIssued + 1
		with(t, s, raftfsm.Command{RaiseLevel: &raftfsm.RaiseLevel{Mutation: session.Mutation{Session: id, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: 1}, To: raftfsm.MaxLevel}})
		holding(t, s, id, "/after")
	}
	inSolo(t, prepare, func(t *testing.T, m *soloMaster) {
		state := m.epoch.state()
		of := func(name api.Name) sequencer.Sequencer {
			node, _ := state.Tree.Get(name)
			s, err := m.Locks.SequencerOf(raftfsm.Answer{Lock: namespace.Ref{Name: node.Name, Instance: node.Instance}, Mode: node.Mode, Generation: node.Lock})
			noErr(t, err)
			return s
		}
		before, after := of("/before"), of("/after")
		without := func(s sequencer.Sequencer, edit func(*sequencer.Sequencer)) sequencer.Sequencer {
			s.Proof = sequencer.Proof{}
			if edit != nil {
				edit(&s)
			}
			return s
		}
		absent := func(s *sequencer.Sequencer) { s.Path = api.MustParsePath("/ls/local/absent") }
		exclusive := func(s *sequencer.Sequencer) { s.Mode = api.Exclusive }
		wrong := func(s *sequencer.Sequencer) { s.Proof = sequencer.Proof{1} }
		for _, good := range []sequencer.Sequencer{before, after, without(before, nil)} {
			report(t, m.Locks.CheckSequencer(t.Context(), 0, good), good)
		}
		one := ""
		for _, bad := range []sequencer.Sequencer{
			without(after, nil), without(after, absent), without(after, exclusive), without(after, wrong),
			without(before, absent), without(before, exclusive), without(before, wrong), without(before, func(s *sequencer.Sequencer) { s.Generation-- }),
		} {
			err := m.Locks.CheckSequencer(t.Context(), 0, bad)
			if one == "" && err != nil {
				one = err.Error()
			}
			failIf(t, api.CodeOf(err) != api.BadSequencer || err.Error() != one, "%v: %v, want %s", bad, err, one)
		}
		// The proof is of every part of it.
		for what, edit := range map[string]func(*sequencer.Sequencer){
			"another path": absent, "another mode": exclusive, "another token": func(s *sequencer.Sequencer) { s.Generation++ },
		} {
			s := after
			edit(&s)
			if err := m.Locks.CheckSequencer(t.Context(), 0, s); err == nil || err.Error() != one {
				t.Errorf("%s under the same proof: %v", what, err)
			}
		}
		report(t, m.Locks.CheckSequencer(t.Context(), id, without(after, nil)), "a session that may read the node")
	})
}
