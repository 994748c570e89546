package raftfsm_test

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// cell is a state machine to which a test applies commands as the log would.
type cell struct {
	t     testing.TB
	state raftfsm.State
	index uint64
	term  uint64
	next  map[api.SessionID]api.RequestNumber
}

func newCell(t testing.TB) *cell {
	c := &cell{t: t, state: raftfsm.NewState(), term: 1, next: map[api.SessionID]api.RequestNumber{}}
	c.elect()
	return c
}

// elect begins the epoch of the next term.
func (c *cell) elect() {
	c.term++
	r := c.apply(raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: "00112233445566778899aabbccddeeff", Secret: []byte("secret"), Level: raftfsm.MaxLevel}})
	if r.Code() != api.OK {
		c.t.Fatalf("a new epoch: %v", r.Err())
	}
}

func (c *cell) apply(command raftfsm.Command) raftfsm.Result {
	c.t.Helper()
	return c.applyIn(c.term, command)
}

// applyIn applies a command that was proposed in another epoch than the one in
// which it is committed.
func (c *cell) applyIn(epoch uint64, command raftfsm.Command) raftfsm.Result {
	c.t.Helper()
	c.index++
	entry := raftfsm.Entry{Epoch: api.Epoch(epoch), Wall: int64(c.index), Commands: []raftfsm.Command{command}}
	data, err := entry.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	decoded, err := raftfsm.DecodeEntry(data)
	if err != nil {
		c.t.Fatal(err)
	}
	results := c.state.Apply(c.index, c.term, decoded)
	if err := c.state.Check(); err != nil {
		c.t.Fatalf("after entry %d: %v", c.index, err)
	}
	return results[0]
}

func (c *cell) session(nonce string) api.SessionID {
	c.t.Helper()
	r := c.apply(raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte(nonce), Principal: nonce, Lease: 12 * time.Second}})
	if r.Code() != api.OK || r.Session == 0 {
		c.t.Fatalf("a session: %v", r.Err())
	}
	return r.Session
}

// mutation numbers the next request of a session without outstanding requests.
func (c *cell) mutation(id api.SessionID) session.Mutation {
	c.next[id]++
	n := c.next[id]
	return session.Mutation{Session: id, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: uint64(n)}
}

func (c *cell) file(id api.SessionID, name api.Name) (namespace.Ref, api.HandleID) {
	c.t.Helper()
	m := c.mutation(id)
	r := c.apply(raftfsm.Command{Open: &raftfsm.Open{Mutation: m, Name: name, Create: api.MayCreate, Kind: api.File}})
	if r.Code() != api.OK {
		c.t.Fatalf("open %s: %v", name, r.Err())
	}
	return namespace.Ref{Name: name, Instance: r.Stat.Instance}, api.HandleID(m.Number)
}

func (c *cell) claim(id api.SessionID, h api.HandleID) raftfsm.Claim {
	return raftfsm.Claim{Mutation: c.mutation(id), Handle: h, Mode: api.Exclusive, Delay: 10 * time.Second}
}

func (c *cell) acquire(lock namespace.Ref, claims ...raftfsm.Claim) []raftfsm.ClaimResult {
	c.t.Helper()
	return c.apply(raftfsm.Command{Acquire: &raftfsm.Acquire{Succession: raftfsm.Succession{Lock: lock, Claims: claims}}}).Claims
}
