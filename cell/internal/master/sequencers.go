package master

import (
	"context"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
)

// CheckSequencer reports whether a sequencer still describes its lock: held, in
// that mode and generation, at some moment after the call began (Chubby §2.4).
// The error says why not.
func (l *Locks) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	if _, err := l.epoch.fence.Prove(ctx); err != nil {
		return err
	}
	g, err := l.Precondition(s)
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
			one.checked = g.Generation
		}
	}
}

// Precondition returns a sequencer of this cell as a condition for the log.
func (l *Locks) Precondition(s sequencer.Sequencer) (raftfsm.Precondition, error) {
	if is := l.epoch.state().CellID; s.Cell != is {
		return raftfsm.Precondition{}, api.Errorf(api.BadSequencer, "it is of another cell, or of an earlier founding of this one (%s, not %s)", s.Cell, is)
	}
	return raftfsm.Precondition{Lock: s.Path.Name(), Mode: s.Mode, Generation: s.Generation}, nil
}

// Preconditions returns what a change through a handle is conditional on: the handle's
// own sequencer and the one of the call, if there are any.
func (l *Locks) Preconditions(h Handle, text string) ([]raftfsm.Precondition, error) {
	list := h.Preconditions()
	if text == "" {
		return list, nil
	}
	g, err := l.Shown(text)
	if err != nil {
		return nil, err
	}
	return append(list, g), nil
}

// Shown returns what a change is conditional on that comes with a sequencer.
func (l *Locks) Shown(text string) (raftfsm.Precondition, error) {
	s, err := sequencer.Parse(text)
	if err != nil {
		return raftfsm.Precondition{}, err
	}
	g, err := l.Precondition(s)
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
