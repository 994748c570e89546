package master

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
)

// CheckSequencer reports whether a sequencer still describes its lock: held, in
// that mode and generation, at some moment after the call began (Chubby §2.4).
// The error says why not. by is the session that shows it; 0 if none does.
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

// noteShown notes with the holders of a lock, as far as listings name them, that a sequencer of it was shown: what it protects
// is protected from a holder that does not know that it has lost it.
func (l *Locks) noteShown(g raftfsm.Precondition) {
	l.epoch.mu.Lock()
	defer l.epoch.mu.Unlock()
	node, ok := l.epoch.state().Tree.Get(g.Lock)
	if !ok || node.Lock != g.Generation {
		return
	}
	for _, h := range node.Holders[:min(len(node.Holders), api.MaxListed)] {
		if one := l.files.handles.find(h.Owner); one != nil {
			//mutant: _ = one //by TestListingsForDrills of ./cell
			one.checked = g.Generation
		}
	}
}

// Precondition returns a sequencer that a session shows, if it is one of this cell, as a condition for the log. What this cell has not
// made gets one answer, whatever there is: that it is not valid tells nothing of the lock.
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

// sequencerProof begins what proofs are made of. Package wire makes its tokens with the same secret and other first bytes.
const sequencerProof byte = 5

// proofOf returns the proof of a sequencer of the cell, by which the cell alone knows that it has made it.
func proofOf(state *raftfsm.State, p raftfsm.Precondition) (proof sequencer.Proof) {
	mac := hmac.New(sha256.New, state.Secret)
	mac.Write(binary.BigEndian.AppendUint64([]byte{sequencerProof, byte(p.Mode)}, uint64(p.Generation)))
	mac.Write([]byte(string(state.CellID) + string(p.Lock)))
	copy(proof[:], mac.Sum(nil))
	return proof
}

// proved reports whether a sequencer has the right proof.
func proved(state *raftfsm.State, p raftfsm.Precondition, proof sequencer.Proof) bool {
	right := proofOf(state, p)
	return hmac.Equal(right[:], proof[:])
}

// needsNoProof reports whether a sequencer counts that has none: below the level of proofs; of a lock that is held since then; and if
// the principal of the session that shows it may look at the lock itself, as it is then asked about what it can see, of a change of its
// own. The principal is "" if no session shows it.
func needsNoProof(state *raftfsm.State, principal string, p raftfsm.Precondition) bool {
	if !state.HasProofs() || p.Generation <= state.Unproved && state.CheckPrecondition(p) == nil {
		return true
	}
	return principal != "" && sight{tree: state.Tree, principal: principal}.looks(p.Lock)
}

// Preconditions returns what a change through a handle is conditional on: the handle's
// own sequencer and the one of the call, if there are any.
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

// Shown returns what a change of a session is conditional on that comes with a sequencer.
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

// expirySlack is how long after its lease an idle cell may take to end a
// session: the clock loop's period, and the entry that ends it.
const expirySlack = 500 * time.Millisecond

// within reports whether name is prefix or below it.
func within(name, prefix api.Name) bool {
	rest, ok := strings.CutPrefix(string(name), string(prefix))
	return ok && (rest == "" || rest[0] == '/')
}
