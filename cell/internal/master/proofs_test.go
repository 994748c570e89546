package master

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/session"
)

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
			if err != nil {
				t.Fatal(err)
			}
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
			if err := m.Locks.CheckSequencer(t.Context(), 0, good); err != nil {
				t.Errorf("%v: %v", good, err)
			}
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
			if api.CodeOf(err) != api.BadSequencer || err.Error() != one {
				t.Errorf("%v: %v, want %s", bad, err, one)
			}
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
		if err := m.Locks.CheckSequencer(t.Context(), id, without(after, nil)); err != nil {
			t.Errorf("a session that may read the node: %v", err)
		}
	})
}
