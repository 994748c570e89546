package sequencer_test

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// held is a lock with a sequencer, which counts how often it was asked.
type held struct {
	token api.Generation
	asked *int
}

func (h held) Sequencer() sequencer.Sequencer {
	*h.asked++
	return sequencer.Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: h.token}
}

// The innermost lock's sequencer is found, a nil Source hides it, and the lock is asked only by those who look.
func TestFromContext(t *testing.T) {
	asked := 0
	outer := sequencer.NewContext(t.Context(), held{41, &asked})
	inner := sequencer.NewContext(outer, held{57, &asked})
	hidden := sequencer.NewContext(inner, nil)
	if asked != 0 {
		t.Errorf("the locks were asked %d times before anybody looked", asked)
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		want uint64
		ok   bool
	}{{"none", t.Context(), 0, false}, {"one", outer, 41, true}, {"two", inner, 57, true}, {"hidden", hidden, 0, false}} {
		if s, ok := sequencer.FromContext(c.ctx); ok != c.ok || s.Token() != c.want {
			t.Errorf("%s: token %d, %v; want %d, %v", c.name, s.Token(), ok, c.want, c.ok)
		}
	}
}
