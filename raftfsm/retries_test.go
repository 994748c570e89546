package raftfsm_test

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A refusal is final only if the request was not done and never will be. The
// refusal of a command that was committed in a later epoch is not: its client
// sends it again.
func TestRefusalThatIsNotFinal(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	write := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: c.mutation(id), Node: lock}}
	old := c.term
	c.elect()
	var e *api.Error
	if r := c.applyIn(old, write); !errors.As(r.Err(), &e) || e.Code != api.StaleEpoch || e.Final {
		t.Errorf("a write of an earlier epoch: %v, final", r.Err())
	}
	if r := c.apply(write); r.Err() != nil {
		t.Errorf("sent again: %v", r.Err())
	}
	release := raftfsm.Command{Release: &raftfsm.Release{Mutation: c.mutation(id), Lock: lock, Handle: h, Generation: 1}}
	if r := c.apply(release); !errors.As(r.Err(), &e) || e.Code != api.NotHeld || !e.Final {
		t.Errorf("the release of a lock that is not held: %v, not final", r.Err())
	}
}

// What a request declares finished is finished while the request is done: its successions cannot
// grant it any more.
func TestDeclarationPrecedesTheHandOver(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	_, h2 := c.file(id, "/lock")
	held := c.acquire(lock, c.claim(id, h))[0].Answer
	waiting := c.claim(id, h2)
	if r := c.acquire(lock, waiting)[0]; !r.Pending {
		t.Fatalf("a second claim: %+v", r)
	}
	r := c.apply(raftfsm.Command{Release: &raftfsm.Release{
		Mutation: c.mutation(id), Lock: lock, Handle: h, Generation: held.Generation,
		Successions: []raftfsm.Succession{{Lock: lock, Claims: []raftfsm.Claim{waiting}}},
	}})
	if r.Code() != api.OK || r.Claims[0].Pending || r.Claims[0].Answer.Code() != api.InvalidArgument {
		t.Errorf("the release: %v; the claim that it declares finished: %+v", r.Err(), r.Claims[0])
	}
}

// A retry gets the first answer, also from a later master, and does nothing
// (decision 13).
func TestRetriesAreAnsweredOnce(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	file, _ := c.file(id, "/file")
	m := c.mutation(id)
	write := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: m, Node: file, Contents: []byte("x")}}
	first := c.apply(write)
	if first.Code() != api.OK || first.Stat.Content != api.Generation(c.state.Counter) {
		t.Fatalf("%+v", first)
	}
	c.elect()
	again := c.apply(write)
	if again.Code() != api.OK || again.Stat.Content != first.Stat.Content {
		t.Errorf("the retry was answered %+v", again.Answer)
	}
	if node, _ := c.state.Tree.Get("/file"); node.Content != first.Stat.Content {
		t.Errorf("the retry was done again: content generation %d", node.Content)
	}
	other := m
	other.Hash++
	if r := c.apply(raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: other, Node: file, Contents: []byte("y")}}); r.Code() != api.InvalidArgument {
		t.Errorf("the number was used for something else: %+v", r.Answer)
	}
	c.apply(raftfsm.Command{EndSessions: &raftfsm.EndSessions{Ends: []raftfsm.End{{Session: id, Reason: api.ByClose}}}})
	if r := c.apply(write); r.Code() != api.SessionExpired {
		t.Errorf("a retry under an ended session: %+v", r.Answer)
	}
	if again, ok := c.state.Sessions.ByNonce([]byte("a")); ok {
		t.Errorf("the ended session %v is found by its nonce", again.ID)
	}
}

// CreateSession twice with the same nonce makes one session.
func TestCreateSessionOnce(t *testing.T) {
	c := newCell(t)
	if a, b := c.session("a"), c.session("a"); a != b {
		t.Errorf("one nonce, two sessions: %v and %v", a, b)
	}
}

// A grant is repeated only while the lock is held.
func TestReplayedGrant(t *testing.T) {
	c := newCell(t)
	id := c.session("a")
	lock, h := c.file(id, "/lock")
	claim := c.claim(id, h)
	first := c.acquire(lock, claim)[0].Answer
	if again := c.acquire(lock, claim)[0].Answer; again.Code() != api.OK || again.Generation != first.Generation {
		t.Errorf("the retry of a valid grant: %+v", again)
	}
	c.apply(raftfsm.Command{Release: &raftfsm.Release{
		Mutation: session.Mutation{Session: id, Number: 3, HighestIssued: 3, Outstanding: []api.RequestNumber{2, 3}, Hash: 1},
		Lock:     lock, Handle: h, Generation: first.Generation,
	}})
	if again := c.acquire(lock, claim)[0].Answer; again.Code() != api.LockLost {
		t.Errorf("the retry of a grant that was released: %+v", again)
	}
}
