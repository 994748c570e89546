package client

import (
	"bytes"
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// SetSequencer binds the handle to a lock: from now on every operation on it
// fails with BadSequencer once that sequencer is not valid (Chubby §2.6). It is
// BadSequencer now if it is not valid now. Operations that have begun are not
// bound. A handle may be bound to several, one after the other.
func (h *Handle) SetSequencer(ctx context.Context, s sequencer.Sequencer) error {
	for {
		var before, after []byte
		err := h.read(ctx, "set sequencer", func(ctx context.Context, t *target, caller *chubbypb.Caller, token []byte) error {
			reply, err := t.data.chubby.SetSequencer(ctx, &chubbypb.SetSequencerRequest{Caller: caller, Handle: token, Sequencer: s.String()})
			before, after = token, reply.GetHandle()
			return err
		})
		if err != nil {
			return err
		}
		if len(after) == 0 {
			return &api.Error{Code: api.Corrupt, Op: "set sequencer", Path: h.path, Message: "the cell answered without a handle; it is not bound"}
		}
		if h.rekey(before, after) {
			return nil
		}
		// Another call has bound the handle meanwhile: bind what came of that.
	}
}

// key returns the handle as the cell names it now.
func (h *Handle) key() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current()
}

// current is key; mu is held.
func (h *Handle) current() []byte {
	if h.guarded != nil {
		return h.guarded
	}
	return h.token
}

// own returns the handle as it was opened, bound to nothing: for what the library
// itself asks about the handle, which is as it is whatever has become of the lock
// that the handle is bound to.
func (h *Handle) own() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
}

// rekey binds the handle if it is still the one given.
func (h *Handle) rekey(before, after []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !bytes.Equal(h.current(), before) {
		return false
	}
	h.guarded = after
	return true
}
