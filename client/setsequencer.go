package client

import (
	"bytes"
	"context"

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

func (h *Handle) currentToken() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.currentTokenLocked()
}

func (h *Handle) currentTokenLocked() []byte {
	if h.boundToken != nil {
		return h.boundToken
	}
	return h.token
}

// openToken returns the handle's token without a sequencer: the library's questions must not fail when the
// bound lock is lost.
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
