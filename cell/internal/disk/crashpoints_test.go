package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// crashTruth returns the term of each entry that the cell commits in the end.
// Entries of other terms in the steps below are never committed.
func crashTruth(index uint64) (term uint64) {
	for _, since := range []struct{ index, term uint64 }{{61, 5}, {15, 4}, {11, 3}, {2, 2}} {
		if index >= since.index {
			return since.term
		}
	}
	return 1 // the configuration
}

// appendStep sends entries from to last, all of one term, after the missing
// entries of the truth, as a master of that term does.
func appendStep(term, from, last, committed uint64) crashSend {
	termOf := func(index uint64) uint64 {
		if index >= from {
			return term
		}
		return crashTruth(index)
	}
	return func(wire *raft.InmemTransport) (acked uint64, err error) {
		for next, tries := from, 1; ; tries++ {
			q := &raft.AppendEntriesRequest{RPCHeader: crashHeader("r2"), Term: term, PrevLogEntry: next - 1, PrevLogTerm: termOf(next - 1), LeaderCommitIndex: committed}
			for index := next; index <= last; index++ {
				q.Entries = append(q.Entries, crashEntry(index, termOf(index)))
			}
			var a raft.AppendEntriesResponse
			switch err := wire.AppendEntries("r1", "a1", q, &a); {
			case err != nil:
				return 0, err
			case a.Success && crashTruth(last) != term:
				return from - 1, nil // the rest may be replaced
			case a.Success:
				return last, nil
			case tries == 3:
				return 0, fmt.Errorf("entries %d to %d of term %d were not taken: %+v", next, last, term, a)
			}
			next = min(a.LastLog, last) + 1
		}
	}
}

// voteStep asks for a vote in term 3.
func voteStep(candidate string, granted bool) crashSend {
	return func(wire *raft.InmemTransport) (acked uint64, err error) {
		q := &raft.RequestVoteRequest{RPCHeader: crashHeader(candidate), Term: 3, LastLogIndex: 12, LastLogTerm: 2, LeadershipTransfer: true}
		var a raft.RequestVoteResponse
		err = wire.RequestVote("r1", "a1", q, &a)
		if err == nil && a.Granted != granted {
			err = fmt.Errorf("a vote for %s: granted %v", candidate, a.Granted)
		}
		return 0, err
	}
}

// installStep sends a snapshot.
func installStep(term, index uint64) crashSend {
	return func(wire *raft.InmemTransport) (acked uint64, err error) {
		state := &crashMachine{}
		for i := uint64(2); i <= index; i++ {
			state.Applied = append(state.Applied, [2]uint64{i, crashTruth(i)})
		}
		text, err := json.Marshal(state)
		if err != nil {
			return 0, err
		}
		q := &raft.InstallSnapshotRequest{
			RPCHeader: crashHeader("r2"), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: crashTruth(index),
			Configuration: raft.EncodeConfiguration(crashMembers()), ConfigurationIndex: 1, Size: int64(len(text)),
		}
		var a raft.InstallSnapshotResponse
		err = wire.InstallSnapshot("r1", "a1", q, &a, bytes.NewReader(text))
		if err == nil && !a.Success {
			err = fmt.Errorf("the snapshot at %d of term %d was not taken: %+v", index, term, a)
		}
		return index, err
	}
}

type crashSend func(*raft.InmemTransport) (acked uint64, err error)

func crashHeader(from string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from), Addr: []byte("a" + from[1:])}
}

func crashMembers() raft.Configuration {
	return testbed.Voters(map[string]string{"r1": "a1", "r2": "a2", "r3": "a3"})
}

// crashSteps is the history of a follower; nil means that it takes its own
// snapshot.
func crashSteps() []crashSend {
	return []crashSend{
		appendStep(2, 2, 12, 8),
		voteStep("r3", true),
		voteStep("r2", false),     // in the same term
		appendStep(3, 11, 14, 14), // replaces 11 and 12
		nil,
		appendStep(3, 15, 17, 14),
		installStep(4, 15), // 15 to 17 are of a master without followers
		appendStep(4, 16, 19, 17),
		installStep(4, 40),
		appendStep(4, 41, 43, 42),
		installStep(4, 60), // over a log that begins at 41
		appendStep(4, 61, 62, 60),
		installStep(5, 50), // the master does not have 61 and 62, and its snapshot is older
		appendStep(5, 61, 64, 64),
		nil,
	}
}

// live starts a replica and takes it through some steps. It restarts a replica that says that it
// must be restarted.
func live(dir string, kind LogStore, c *crashCamera, from, to int, done func(step int, r *crashReplica, acked uint64) error) error {
	r, err := openCrashReplica(dir, kind, c)
	if err != nil {
		return err
	}
	steps := crashSteps()
	for i := from; i < min(to, len(steps)); i++ {
		acked, err := r.do(steps[i])
		if err != nil && errors.Is(r.s.failStop.failure(), errRestart) {
			_ = r.stop() // an error was returned already
			if r, err = openCrashReplica(dir, kind, c); err == nil {
				acked, err = r.do(steps[i])
			}
		}
		if err == nil {
			err = errors.Join(r.whole(), done(i, r, acked))
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, errors.Join(err, r.stop()))
		}
	}
	return errors.Join(r.machine.check(), r.stop())
}

// TestKilledAtEachStep: a replica that is killed after any operation on its
// data starts again, twice, has what it had acknowledged, and continues.
func TestKilledAtEachStep(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		c := &crashCamera{t: t, dir: dir}
		if err := live(c.dir, kind, c, 0, len(crashSteps()), func(step int, r *crashReplica, acked uint64) error {
			c.step, c.acked, c.term = step+1, max(c.acked, acked), r.raft.CurrentTerm()
			if has := r.s.Holds(r.raft); has < c.acked {
				return fmt.Errorf("it says that it holds %d entries, and acknowledged %d", has, c.acked)
			}
			return c.shoot("the answer", nil)
		}); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.points {
			if err := p.check(kind); err != nil {
				t.Errorf("killed in step %d after %s: %v", p.step, p.after, err)
			}
		}
		t.Logf("%d points", len(c.points))
	})
}

func (p crashPoint) check(kind LogStore) error {
	s, err := testStores(p.dir, kind) // it is killed again before it does anything
	if err != nil {
		return err
	}
	base, _, err := s.readableSnapshot()
	for index := base + 1; err == nil && index <= p.acked; index++ {
		if err = readLog(s.rawLogs, index, &raft.Log{}); err != nil {
			err = fmt.Errorf("entry %d was acknowledged: %w", index, err)
		}
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	return live(p.dir, kind, nil, p.step, p.step+3, func(_ int, r *crashReplica, _ uint64) error {
		if term := r.raft.CurrentTerm(); term < p.term {
			return fmt.Errorf("it is in term %d, and was in %d", term, p.term)
		}
		return nil
	})
}

// Raft goes on in a way that does not fit the log, and the replica stops with an error, and continues after a restart.
func TestSnapshotThatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		steps         []crashSend
		wrong, better crashSend
		last          uint64
	}{
		// A copy of a snapshot arrives late, when a newer one has removed its entries from the log. Raft goes back to it, and takes the
		// master's next entries for its successors.
		"late": {
			[]crashSend{appendStep(2, 2, 10, 10), appendStep(3, 11, 14, 14), appendStep(4, 15, 30, 30), nil, installStep(4, 20)},
			appendStep(4, 31, 33, 33), appendStep(4, 31, 33, 33), 33,
		},
		// The master's snapshot ends with an entry at whose index the log has another one, its last, of a master without followers. Raft keeps
		// that one until its next start, and finds no entry of the master that follows it.
		"of the last entry": {
			[]crashSend{appendStep(2, 2, 10, 10), appendStep(3, 11, 17, 14)}, installStep(4, 17), appendStep(4, 18, 20, 20), 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
				r := testbed.Must(openCrashReplica(dir, kind, nil))(t)
				r.take(t, c.steps...)
				if _, err := r.do(c.wrong); err == nil {
					t.Error("it went on without a new start")
				}
				if err := r.stop(); !errors.Is(err, errRestart) {
					t.Errorf("it ended with %v", err)
				}
				r = testbed.Must(openCrashReplica(dir, kind, nil))(t)
				_, err := r.do(c.better)
				testbed.Await(t, "entries that are applied", func() bool { return r.raft.AppliedIndex() == c.last })
				testbed.Report(t, errors.Join(err, r.machine.check(), r.whole(), r.stop()))
			})
		})
	}
}
