package client

import (
	"bytes"
	"context"

	"github.com/chubbylock/chubby/sequencer"
)

// SetSequencer binds the handle to a lock: from now on every operation on it fails
// with BadSequencer once that sequencer is not valid any more (Chubby §2.6). It fails
// with BadSequencer if the sequencer is not valid now. Operations that have begun are
// not bound. A handle may be bound to several sequencers, one after the other.
func (h *Handle) SetSequencer(ctx context.Context, s sequencer.Sequencer) error {
	for {
		before, after, err := bindAtCell(ctx, h, s)
		if err != nil {
			return err
		}
		if h.bind(before, after) {
			return nil
		}
		// Another call has bound the handle meanwhile: bind the result of that.
	}
}

// currentToken returns the token that names the handle in requests now.
func (h *Handle) currentToken() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.currentTokenLocked()
}

// currentTokenLocked is currentToken; mu is held.
func (h *Handle) currentTokenLocked() []byte {
	if h.boundToken != nil {
		return h.boundToken
	}
	return h.token
}

// openToken returns the token with which the handle was opened, bound to no
// sequencer: for the library's own questions about the handle, which must not fail
// because the lock that the handle is bound to was lost.
func (h *Handle) openToken() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
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
