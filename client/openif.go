package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// An Open has no room for its own condition. But an Open relative to a directory depends on the sequencer
// bound to the directory's handle (SetSequencer), in the log entry that creates the node. So
// OpenOptions.IfSequencer binds a token of the directory, for this Open alone.

func openBelowParent(ctx context.Context, c *Client, p api.Path, opts OpenOptions) (h *Handle, err error) {
	parent := OpenOptions{Write: true, Kind: api.Directory}
	err = visit(ctx, c, p.Parent().String(), parent, func(dir *Handle) (err error) {
		h, err = dir.Open(ctx, p.Base(), opts)
		return err
	})
	return h, err
}

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
