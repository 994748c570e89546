package disk

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/raft"
)

// The newest snapshot that can be read and the entries after it are handed over, each once and in order; and again the next time.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		last     uint64
		snaps    []uint64
		snapshot uint64
	}{
		{last: 9},
		{last: 9, snaps: []uint64{4}, snapshot: 4},
		{last: 9, snaps: []uint64{9}, snapshot: 9},
		{last: 9, snaps: []uint64{4, 7}, snapshot: 7},
		{last: 9, snaps: []uint64{12}, snapshot: 12}, // the master's, after which the log is still to come
	} {
		for _, kind := range []LogStore{BoltStore, WALStore} {
			dir := t.TempDir()
			filled(t, dir, kind, c.last, 0)
			for _, at := range c.snaps {
				s := mustOpen(t, dir, kind)
				takeSnapshot(t, s, at)
				mustClose(t, s)
			}
			for range 2 {
				replayed(t, dir, kind, max(c.last, c.snapshot), c.snapshot)
			}
		}
	}
}

// replayed checks what is handed over.
func replayed(t *testing.T, dir string, kind LogStore, last, snapshot uint64) {
	t.Helper()
	owner, err := OwnerOf(dir)
	if err != nil || owner != (Owner{"foo", "r1", kind}) {
		t.Fatalf("%+v, %v", owner, err)
	}
	s := mustOpen(t, dir, kind)
	defer mustClose(t, s)
	if index, term, err := s.End(); index != last || term != 1 || err != nil {
		t.Errorf("with snapshot %d it ends at entry %d of term %d, %v", snapshot, index, term, err)
	}
	m := &replayMachine{t: t, next: 1, snapshot: snapshot}
	if err := s.Replay(m, func(index uint64) error {
		if index+1 != m.next {
			t.Errorf("entry %d is done, and the next is %d", index, m.next)
		}
		return nil
	}); err != nil || m.next != last+1 {
		t.Errorf("with snapshot %d the next is %d, %v", snapshot, m.next, err)
	}
	if snapshot < last {
		stop := fmt.Errorf("stop")
		m := &replayMachine{t: t, next: 1, snapshot: snapshot}
		if err := s.Replay(m, func(uint64) error { return stop }); !errors.Is(err, stop) || m.next != snapshot+2 {
			t.Errorf("stopped after the first entry: the next is %d, %v", m.next, err)
		}
		m = &replayMachine{t: t, next: 1, snapshot: snapshot, fails: stop}
		if err := s.Replay(m, func(uint64) error { return nil }); !errors.Is(err, stop) || m.next != snapshot+2 {
			t.Errorf("an entry cannot be applied: the next is %d, %v", m.next, err)
		}
	}
}

// replayMachine is a state machine that knows what comes next.
type replayMachine struct {
	raft.FSM
	t              *testing.T
	next, snapshot uint64
	fails          error
}

func (m *replayMachine) Restore(contents io.ReadCloser) error {
	text, err := io.ReadAll(contents)
	if m.next != 1 || string(text) != "state" {
		m.t.Errorf("a snapshot of %q before entry %d", text, m.next)
	}
	m.next = m.snapshot + 1
	return errors.Join(err, contents.Close())
}

func (m *replayMachine) Apply(entry *raft.Log) any {
	want := crashBatch(m.next, m.next, 1)[0]
	if entry.Index != m.next || entry.Type != want.Type || string(entry.Data) != string(want.Data) {
		m.t.Errorf("entry %d %q, want %d %q", entry.Index, entry.Data, m.next, want.Data)
	}
	m.next++
	if m.fails != nil {
		return m.fails
	}
	return nil
}
