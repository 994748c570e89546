package master

import (
	"context"
	"crypto/hmac"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
)

// CheckSequencer checks that a sequencer was valid at a moment after the call began: its lock was held in
// that mode and generation (Chubby §2.4). The error says why not. by is the session that shows it, or 0.
func (l *Locks) CheckSequencer(ctx context.Context, by api.SessionID, s sequencer.Sequencer) error {
	if _, err := l.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	g, err := l.Precondition(by, s)
	if err != nil {
		return err
	}
	if err := l.epoch.state().CheckPrecondition(g); err != nil {
		return err
	}
	l.noteShown(g)
	return nil
}

// noteShown records that a sequencer was shown, for the holders that listings name. The work of the lock is
// then safe from a holder that has lost it unknowingly.
func (l *Locks) noteShown(g raftfsm.Precondition) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	node, ok := l.epoch.state().Tree.Get(g.Lock)
	if !ok || node.Lock != g.Generation {
		return
	}
	for _, h := range node.Holders[:min(len(node.Holders), api.MaxListed)] {
		if one := l.files.handles.Find(h.Owner); one != nil {
			//mutant: _ = one //by TestListingsForDrills of ./cell
			one.Checked = g.Generation
		}
	}
}

// Precondition returns a sequencer of this cell as a condition for the log. All others get one error, which
// says nothing about the lock.
func (l *Locks) Precondition(by api.SessionID, s sequencer.Sequencer) (raftfsm.Precondition, error) {
	state := l.epoch.state()
	if is := state.CellID; s.Cell != is {
		return raftfsm.Precondition{}, api.Errorf(api.BadSequencer, "it is of another cell, or of an earlier founding of this one (%s, not %s)", s.Cell, is)
	}
	p := raftfsm.Precondition{Lock: s.Path.Name(), Mode: s.Mode, Generation: s.Generation}
	if proved(state, p, s.Proof) || s.Proof == (sequencer.Proof{}) && needsNoProof(state, l.epoch.principal(by), p) {
		return p, nil
	}
	return raftfsm.Precondition{}, api.Errorf(api.BadSequencer,
		"this cell does not know it for its own: it has no proof, or a wrong one, and tells nothing of the lock; send the text that came with the lock (chubby2:...), and upgrade the client if it has none")
}

func proved(state *raftfsm.State, p raftfsm.Precondition, proof sequencer.Proof) bool {
	right := proofOf(state, p)
	return hmac.Equal(right[:], proof[:])
}

// needsNoProof reports whether a sequencer without a proof is valid: below the level of proofs; for a grant
// from then that still holds; or if the session's principal may look at the lock itself. The principal is ""
// without a session.
func needsNoProof(state *raftfsm.State, principal string, p raftfsm.Precondition) bool {
	if !state.HasProofs() || p.Generation <= state.Unproved && state.CheckPrecondition(p) == nil {
		return true
	}
	return principal != "" && sight{tree: state.Tree, principal: principal}.looks(p.Lock)
}

// Preconditions returns the sequencers that a change through a handle depends on: the handle's and the
// call's.
func (l *Locks) Preconditions(h Handle, text string) ([]raftfsm.Precondition, error) {
	list := h.Preconditions()
	if text == "" {
		return list, nil
	}
	g, err := l.Shown(h.Owner.Session, text)
	if err != nil {
		return nil, err
	}
	return append(list, g), nil
}

// Shown returns the precondition in a sequencer that comes with a session's change.
func (l *Locks) Shown(by api.SessionID, text string) (raftfsm.Precondition, error) {
	s, err := sequencer.Parse(text)
	if err != nil {
		return raftfsm.Precondition{}, err
	}
	g, err := l.Precondition(by, s)
	if err == nil {
		l.noteShown(g)
	}
	return g, err
}
