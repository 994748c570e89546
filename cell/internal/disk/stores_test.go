package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// TestStartVerifiesLog: Raft panics if it cannot read an entry while it starts,
// and if there is a gap between snapshot and log. The stores must find both
// before that.
func TestStartVerifiesLog(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*testing.T, *Stores)
		want   string // empty: it opens
	}{
		"nothing": {damage: func(*testing.T, *Stores) {}},
		"compacted up to the snapshot": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 5)
			testbed.NoErr(t, s.rawLogs.DeleteRange(1, 5))
		}},
		"compacted without a snapshot": {damage: func(t *testing.T, s *Stores) {
			testbed.NoErr(t, s.rawLogs.DeleteRange(1, 2))
		}, want: "log entry 1 of 9"},
		"a gap": {damage: func(t *testing.T, s *Stores) {
			testbed.NoErr(t, s.logs.DeleteRange(4, 5))
		}, want: "log entry 4 of 9"},
		"a flipped bit": {damage: func(t *testing.T, s *Stores) {
			var log raft.Log
			testbed.NoErr(t, s.rawLogs.GetLog(8, &log))
			log.Data[3] ^= 4
			testbed.NoErr(t, s.rawLogs.StoreLog(&log))
		}, want: "log entry 8 fails its checksum"},
		"a flipped bit below the snapshot": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 8)
			testbed.NoErr(t, s.rawLogs.StoreLog(&raft.Log{Index: 3}))
		}},
		"terms that fall": {damage: func(t *testing.T, s *Stores) {
			testbed.NoErr(t, s.logs.StoreLog(crashEntry(10, 0)))
		}, want: "log entry 10 is of term 0"},
		"the newest snapshot rots, the log reaches back": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 4)
			damageSnapshots(t, s.dir)
			takeSnapshot(t, s, 3) // older, and whole
		}},
		"the newest snapshot rots, the log does not reach back": {damage: func(t *testing.T, s *Stores) {
			takeSnapshot(t, s, 6)
			damageSnapshots(t, s.dir)
			takeSnapshot(t, s, 3)
			testbed.NoErr(t, s.rawLogs.DeleteRange(1, 5))
		}, want: "log entry 4 of 9"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, BoltStore, 9, 0)
			s := mustOpen(t, dir, BoltStore)
			c.damage(t, s)
			mustClose(t, s)
			s, err := testStores(dir, BoltStore)
			if c.want == "" {
				testbed.NoErr(t, err)
				mustClose(t, s)
				return
			}
			if api.CodeOf(err) != api.Corrupt || !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), identity.LossAdvice) {
				t.Errorf("%v, want a refusal, Corrupt with %q and what to do", err, c.want)
			}
		})
	}
}

// TestInterruptedStart: what an interrupted first start or snapshot leaves
// behind does no harm.
func TestInterruptedStart(t *testing.T) {
	for _, kind := range LogStores() {
		dir := filepath.Join(t.TempDir(), "not", "there")
		s := mustOpen(t, dir, kind)
		mustClose(t, s)
		for _, name := range []string{markerName, votesName} { // as if the start had been interrupted before
			testbed.NoErr(t, os.Remove(filepath.Join(dir, name)))
		}
		overwrite(votesName+newSuffix, "half a bbolt file")(t, dir)
		unfinished := filepath.Join(dir, snapshotsName, "1-2-3"+tmpSuffix)
		testbed.NoErr(t, os.Mkdir(unfinished, 0o700))
		overwrite("state.bin", "half a snapshot")(t, unfinished)
		s = mustOpen(t, dir, kind)
		if used, err := s.holdsCell(); used || err != nil {
			t.Errorf("%s: it holds a cell: %v, %v", kind, used, err)
		}
		for _, left := range []string{unfinished, filepath.Join(dir, votesName+newSuffix)} {
			if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is left: %v", kind, left, err)
			}
		}
	}
}

// TestInterruptedInstall: a replica is killed after it has stored a snapshot of
// the leader, and before it has emptied its log, which ends earlier. It starts
// again and accepts the entries that follow the snapshot.
func TestInterruptedInstall(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		filled(t, dir, kind, 9, 0)
		s := mustOpen(t, dir, kind)
		takeSnapshot(t, s, 20)
		mustClose(t, s)
		for next := uint64(21); next < 24; next++ { // it is restarted again and again
			opts := testStoreOptions()
			opts.Fatal = func(err error) { t.Error(err) }
			s := testbed.Must(Open(dir, kind, opts))(t)
			if s.last != next-1 {
				t.Errorf("it says that it ends at %d, want %d", s.last, next-1)
			}
			if err := s.failStop.callOnGoroutine(func() error { return s.logs.StoreLogs(crashBatch(next, next, 1)) }); err != nil {
				t.Errorf("append entry %d: %v", next, err)
			}
			if first, err := s.rawLogs.FirstIndex(); first != 21 || err != nil {
				t.Errorf("the log begins at %d, want 21: %v", first, err)
			}
			mustClose(t, s)
		}
	})
}

// TestGapInOldLog: an earlier version left entries before a snapshot of the leader in bbolt's log,
// and continued behind it. It is unknown whether they were ever committed.
func TestGapInOldLog(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, BoltStore, 9, 20)
	s := mustOpen(t, dir, BoltStore)
	testbed.NoErr(t, errors.Join(s.logs.StoreLogs(crashBatch(1, 9, 1)), s.logs.StoreLogs(crashBatch(21, 22, 1))))
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	if first, err := s.rawLogs.FirstIndex(); first != 21 || s.last != 22 || err != nil {
		t.Errorf("entries %d to %d are left, want 21 to 22: %v", first, s.last, err)
	}
}

// TestInterruptedBootstrap: Raft writes the first term and then the first
// entry. After a crash between the two, the replica must still be able to
// bootstrap its cell.
func TestInterruptedBootstrap(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, BoltStore)
	testbed.NoErr(t, s.stable.SetUint64([]byte(currentTermKey), 1))
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	testbed.NoErr(t, s.who.Store(rosterAlone(s.who.Get()), false))
	conf := raft.DefaultConfig()
	conf.LocalID = "r1"
	_, wire := raft.NewInmemTransport("a")
	testbed.NoErr(t, s.Bootstrap(conf, wire))
	if used, err := s.holdsCell(); !used || err != nil {
		t.Errorf("bootstrapped: %v, %v", used, err)
	}
	if err := s.Bootstrap(conf, wire); !errors.Is(err, raft.ErrCantBootstrap) {
		t.Errorf("bootstrapped twice: %v", err)
	}
	for _, state := range []func(*Stores) error{
		func(s *Stores) error { return s.stable.SetUint64([]byte(currentTermKey), 2) },
		func(s *Stores) error {
			return errors.Join(s.stable.SetUint64([]byte(currentTermKey), 1), s.logs.StoreLog(crashEntry(1, 1)))
		},
	} {
		s := mustOpen(t, t.TempDir(), BoltStore)
		testbed.NoErr(t, state(s))
		if used, err := s.holdsCell(); !used || err != nil {
			t.Errorf("a replica that has taken part: %v, %v", used, err)
		}
	}
}

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
