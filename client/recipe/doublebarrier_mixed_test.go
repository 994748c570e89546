//go:build linux

package recipe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// A participant is a program of v0.1.0, which has taken its lock at a cell that makes proofs: the state has its sequencer as it got it, without
// one. It holds its lock, and so counts: what such a program does goes on as before, but at guards with a session.
func TestDoubleBarrierCountsMembersOfV010(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		old := w.dial("old")
		w.mkdir(old, partyDir)
		h, err := old.Open(w.ctx, partyDir+"/member-OLD", client.OpenOptions{Write: true, Create: client.NewFile, Ephemeral: true})
		w.ok(err)
		lock, err := h.Acquire(w.ctx, api.Exclusive)
		w.ok(err)
		bare := lock.Sequencer()
		bare.Proof = sequencer.Proof{}
		text, err := json.Marshal(party{Size: 2, Round: 1, Members: map[string]string{"member-OLD": bare.String()}})
		w.ok(err)
		w.put(old, partyDir+"/state", string(text))
		ctx, cancel := w.brief(time.Minute)
		defer cancel()
		if _, err := NewDoubleBarrier(w.dial("new"), partyDir, 2).Enter(ctx); err != nil {
			t.Errorf("both have come: %v", err)
		}
		w.ok(lock.Err())
		read, _, err := old.Get(w.ctx, partyDir+"/state")
		w.ok(err)
		var s party
		w.ok(json.Unmarshal(read, &s))
		if _, counts := s.Members["member-OLD"]; !counts || !s.Inside {
			t.Errorf("a member that holds its lock was struck out: %s", read)
		}
	})
}
