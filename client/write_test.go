package client

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// A write that depends on what is no sequencer is not one without a condition:
// whoever has no lock has a zero Sequencer.
func TestIfSequencerOfNoSequencer(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		h := lockable(t, c, 0)
		for name, none := range map[string]sequencer.Sequencer{
			"zero": {}, "without a cell": {Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: 7},
		} {
			condition := IfSequencer(none)
			for what, call := range map[string]func() error{
				"SetContents": func() error { _, err := h.SetContents(t.Context(), nil, condition); return err },
				"SetACL":      func() error { _, err := h.SetACL(t.Context(), api.ACL{}, condition); return err },
				"Delete":      func() error { return h.Delete(t.Context(), condition) },
			} {
				if err := call(); !errors.Is(err, api.BadSequencer) || len(f.heard(what)) != 0 {
					t.Errorf("%s, %s: %v, and %d requests were sent", name, what, err, len(f.heard(what)))
				}
			}
		}
		closeClient(t, c)
	})
}
