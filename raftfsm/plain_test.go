package raftfsm_test

import (
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// plainCell keeps sessions and nodes in plain maps, of which there is no snapshot: what the least is
// that State could cost (docs/adr/0017-state-is-changed-in-place.md). It checks as little as it can.
type plainCell struct {
	sessions map[api.SessionID]*session.Session[raftfsm.Answer]
	nodes    map[api.Name]*namespace.Node
	counter  uint64
}

// answer puts the answer to a request into a new record of its session.
func (c *plainCell) answer(m *session.Mutation, a raftfsm.Answer) {
	next := *c.sessions[m.Session]
	next.HighestIssued = m.HighestIssued
	next.Open = []session.Request[raftfsm.Answer]{{Number: m.Number, Done: true, Hash: m.Hash, Answer: a}}
	c.sessions[m.Session] = &next
}

func (c *plainCell) acquire(lock namespace.Ref, claim *raftfsm.Claim) raftfsm.Result {
	next := *c.nodes[lock.Name]
	by := namespace.Owner{Session: claim.Mutation.Session, Handle: claim.Handle}
	c.counter++
	next.Mode, next.Lock, next.Holders = claim.Mode, api.Generation(c.counter), []namespace.Holder{{Owner: by}}
	c.nodes[lock.Name] = &next
	a := raftfsm.Answer{Generation: next.Lock, Lock: lock, Mode: claim.Mode, Handle: claim.Handle}
	c.answer(&claim.Mutation, a)
	return raftfsm.Result{Claims: []raftfsm.ClaimResult{{Owner: by, Number: claim.Mutation.Number, Answer: a}}}
}

func (c *plainCell) release(r *raftfsm.Release) raftfsm.Result {
	next := *c.nodes[r.Lock.Name]
	next.Mode, next.Holders = 0, nil
	c.nodes[r.Lock.Name] = &next
	c.answer(&r.Mutation, raftfsm.Answer{})
	return raftfsm.Result{Free: []api.Name{r.Lock.Name}, Vacant: []namespace.Vacancy{{Lock: r.Lock, Generation: r.Generation}}}
}

// BenchmarkPlainMaps is BenchmarkLockUnlock with plain maps.
func BenchmarkPlainMaps(b *testing.B) {
	for _, sessions := range []int{64, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d,commands=64", sessions), func(b *testing.B) {
			c := newBenchCell(b, sessions)
			plain := &plainCell{sessions: map[api.SessionID]*session.Session[raftfsm.Answer]{}, nodes: map[api.Name]*namespace.Node{}}
			for i, id := range c.ids {
				plain.sessions[id], _ = c.state.Sessions.Get(id)
				plain.nodes[c.locks[i].Name], _ = c.state.Tree.Get(c.locks[i].Name)
			}
			c.apply = plain.apply
			first := 0
			c.measure(b, 2*64, func() {
				c.lockUnlock(b, first, 64)
				first = (first + 64) % sessions
			})
		})
	}
}

func (c *plainCell) apply(_, _ uint64, e raftfsm.Entry) []raftfsm.Result {
	results := make([]raftfsm.Result, len(e.Commands))
	for i, command := range e.Commands {
		if command.Acquire != nil {
			results[i] = c.acquire(command.Acquire.Lock, &command.Acquire.Claims[0])
		} else {
			results[i] = c.release(command.Release)
		}
	}
	return results
}
