package client

import (
	"bytes"
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// SetSequencer binds the handle to a lock: from now on every operation on it fails with BadSequencer once
// that sequencer is invalid (Chubby §2.6). If it is invalid now, SetSequencer fails with BadSequencer.
// Earlier operations are not bound. A handle may be bound to several sequencers, one after the other.
func (h *Handle) SetSequencer(ctx context.Context, s sequencer.Sequencer) error {
	for {
		before, after, err := bindAtCell(ctx, h, s)
		if err != nil {
			return err
		}
		if h.bind(before, after) {
			return nil
		}
		// Another call has bound the handle meanwhile: bind that result.
	}
}

// bind makes after the handle's token, if that is still before.
func (h *Handle) bind(before, after []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !bytes.Equal(h.currentTokenLocked(), before) {
		return false
	}
	h.boundToken = after
	return true
}

// An Open has no room for its own condition. But an Open relative to a directory depends on the sequencer
// bound to the directory's handle (SetSequencer), in the log entry that creates the node. So
// OpenOptions.IfSequencer binds a token of the directory, for this Open alone.

// tokenFor returns the handle's token for an Open below it: bound to s, unless s is nil.
func tokenFor(ctx context.Context, h *Handle, s *sequencer.Sequencer) ([]byte, error) {
	if s == nil {
		return h.currentToken(), nil
	}
	_, bound, err := bindAtCell(ctx, h, *s)
	//mutant: _ = bound; return h.currentToken(), err
	return bound, err
}

// bindAtCell returns the token of the handle, and one also bound to a sequencer; BadSequencer if that is
// invalid. The handle's own binding does not change.
func bindAtCell(ctx context.Context, h *Handle, s sequencer.Sequencer) (before, after []byte, err error) {
	err = h.readCall(ctx, "set sequencer", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error {
		reply, err := t.data.chubby.SetSequencer(ctx, &chubbypb.SetSequencerRequest{Caller: caller, Handle: token, Sequencer: s.String()})
		before, after = token, reply.GetHandle()
		return err
	})
	if err == nil && len(after) == 0 {
		err = &api.Error{Code: api.Corrupt, Op: "set sequencer", Path: h.path, Message: "the cell answered without a handle; it is not bound"}
	}
	return before, after, err
}

// CheckSequencer asks the cell whether a sequencer, given as text, is still its lock's. BadSequencer says
// that it is not, and why (Chubby §2.6).
func (c *Cell) CheckSequencer(ctx context.Context, text string) error {
	return c.ask(ctx, "check sequencer", "", func(ctx context.Context, t *target) error {
		return checkSequencerAt(ctx, c, t, text)
	})
}

func checkSequencerAt(ctx context.Context, c *Cell, t *target, text string) error {
	reply, err := t.data.chubby.CheckSequencer(ctx, &chubbypb.CheckSequencerRequest{Cell: c.cfg.Cell, Sequencer: text})
	if err == nil && !reply.GetValid() {
		err = &api.Error{Code: api.BadSequencer, Message: reply.GetExplanation()}
	}
	return err
}

// Checker returns a checker for a sequencer.Guard that asks the cell for each request.
// Client.CachingChecker's asks less often.
func (c *Cell) Checker() sequencer.Checker { return uncachedChecker{c} }

type uncachedChecker struct{ cell *Cell }

func (k uncachedChecker) CheckSequencer(ctx context.Context, s sequencer.Sequencer) error {
	return k.cell.CheckSequencer(ctx, s.String())
}
