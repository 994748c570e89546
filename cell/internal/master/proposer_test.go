package master

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// sized returns a change of that size by a session.
func sized(by api.SessionID, size int) raftfsm.Command {
	return raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: session.Mutation{Session: by}, Contents: make([]byte, size)}}
}

// heldEntries holds every entry back until the test releases it.
type heldEntries struct {
	entries chan []byte
	release chan struct{}
}

func (h *heldEntries) Append(data []byte) ([]raftfsm.Result, error) {
	h.entries <- data
	<-h.release
	e, err := raftfsm.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	return make([]raftfsm.Result, len(e.Commands)), nil
}

// inProposer runs a test with a proposer whose entries are held back.
func inProposer(t *testing.T, l limits, test func(t *testing.T, p *proposer, h *heldEntries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &heldEntries{entries: make(chan []byte, 1000), release: make(chan struct{}, 1000)}
		p := newProposer(h, 1, func() int64 { return 1 }, func([]raftfsm.Command, []steps.RequestID, []raftfsm.Result, error) {})
		p.limits = l
		go p.runProposer(t.Context())
		test(t, p, h)
		close(h.release)
	})
}

// A command that is too large for an entry is refused before it is written,
// with an error that says so and that it was not done.
func TestCommandTooLargeIsRefused(t *testing.T) {
	inProposer(t, defaultLimits(), func(t *testing.T, p *proposer, h *heldEntries) {
		if err := p.enqueue(newProposal(sized(1, api.MaxCommand), raftfsm.MaxLevel, false, nil)); !errors.Is(err, api.TooLarge) {
			t.Errorf("a command above the limit: %v; want TooLarge", err)
		}
		if hand(p, sized(0, api.MaxCommand)) {
			t.Error("a command of the master's own above the limit was taken")
		}
		synctest.Wait()
		if len(h.entries) > 0 {
			t.Error("it was written all the same")
		}
	})
}

// Entries are cut by their encoded bytes.
func TestBatchesAreBoundedByBytes(t *testing.T) {
	l := defaultLimits()
	inProposer(t, l, func(t *testing.T, p *proposer, h *heldEntries) {
		for range 40 {
			hand(p, sized(0, 30_000))
		}
		hand(p, sized(0, api.MaxContents))
		for range 100 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		n := 0
		for len(h.entries) > 0 {
			data := <-h.entries
			e, err := raftfsm.DecodeEntry(data)
			if err != nil {
				t.Fatal(err)
			}
			if n += len(e.Commands); len(data) > l.batch+entryOverhead && len(e.Commands) > 1 {
				t.Errorf("an entry of %d commands has %d bytes; at most %d are allowed", len(e.Commands), len(data), l.batch)
			}
		}
		if n != 41 {
			t.Errorf("%d commands were written; want 41", n)
		}
	})
}

// The bytes that wait in the proposer are bounded: for all sessions together,
// with room left for the master's own commands, and for each session.
func TestPendingBytesAreBounded(t *testing.T) {
	l := limits{command: 10_000, batch: 1, claims: 1, pending: 80_000, share: 20_000}
	inProposer(t, l, func(t *testing.T, p *proposer, h *heldEntries) {
		ask := func(by api.SessionID, size int) error {
			return p.enqueue(newProposal(sized(by, size), raftfsm.MaxLevel, false, nil))
		}
		if err := ask(9, 1); err != nil { // it is on its way, and no longer waits
			t.Fatal(err)
		}
		synctest.Wait()
		took := map[api.SessionID]int{}
		for range 10 {
			for by := api.SessionID(1); by <= 4; by++ {
				if err := ask(by, 4_000); err == nil {
					took[by]++
				} else if !errors.Is(err, api.Unavailable) {
					t.Fatal(err)
				}
			}
		}
		if one, all := took[1], took[1]+took[2]+took[3]+took[4]; one != 4 || all != 14 {
			t.Errorf("of one session %d changes of 4,000 bytes wait, of all %d; want 4 (20,000 bytes each) and 14 (60,000 for all)", one, all)
		}
		if !hand(p, sized(0, 9_000)) {
			t.Error("there is no room for the master's own commands")
		}
		for range 100 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		if p.bytes != 0 || len(p.shares) != 0 {
			t.Errorf("%d bytes, and shares of %d sessions, are counted as waiting when nothing does", p.bytes, len(p.shares))
		}
		if err := ask(1, 4_000); err != nil {
			t.Errorf("there is room again, and a change is refused: %v", err)
		}
	})
}

// hand hands one of the master's own commands to a proposer.
func hand(p *proposer, c raftfsm.Command) bool {
	return p.enqueue(newProposal(c, raftfsm.MaxLevel, true, nil)) == nil
}
