package disk

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/hashicorp/raft"
)

// said is what others know from a leader: nothing of it may be lost with its power.
type said struct {
	term      uint64            // the newest of its messages
	committed uint64            // the last entry that it called committed, or that its state machine applied
	holds     uint64            // how far its hello says that its log goes
	sent      map[uint64]uint64 // the terms of the entries that it sent, by index
}

// crashPeer is the other half of a majority: it votes for r1, and acknowledges its entries at once.
type crashPeer struct {
	mu    sync.Mutex // guards what follows
	said  said
	mute  bool   // it acknowledges nothing
	next  uint64 // after the last entry that it was sent
	fault error
}

func (p *crashPeer) answer(rpc raft.RPC) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var deaf error
	if p.mute {
		deaf = errors.New("no answer")
	}
	switch q := rpc.Command.(type) {
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: crashHeader("r2"), Term: q.Term, Granted: true}, deaf)
	case *raft.RequestVoteRequest:
		p.said.term = max(p.said.term, q.Term)
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: crashHeader("r2"), Term: q.Term, Granted: true}, deaf)
	case *raft.AppendEntriesRequest:
		p.said.term, p.said.committed = max(p.said.term, q.Term), max(p.said.committed, q.LeaderCommitIndex)
		for _, e := range q.Entries {
			if !p.mute { // else another leader will replace it
				p.said.sent[e.Index], p.next = e.Term, e.Index+1
			}
		}
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: crashHeader("r2"), Term: q.Term, LastLog: p.next - 1, Success: !p.mute}, deaf)
	case *raft.InstallSnapshotRequest: // while it is mute, it seems to have nothing
		_, err := io.Copy(io.Discard, rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: crashHeader("r2"), Term: q.Term}, err)
	default:
		p.fault = fmt.Errorf("%T", q)
		rpc.Respond(nil, p.fault)
	}
}

// set changes the peer, or has it do something alone.
func (p *crashPeer) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// TestLeaderKilledAtEachStep: a leader sends entries, and has them acknowledged, while its disk takes 50 ms for each write. Meanwhile it is
// deposed, asked for a vote, and elected again. It is killed before and after each change of its directory: it starts again, is in the
// newest term it has spoken of, has all that was applied or called committed, and of earlier terms than that on its disk all that it had
// sent. Then it follows another leader that has what was committed.
func TestLeaderKilledAtEachStep(t *testing.T) {
	onEachStore(t, func(t *testing.T, kind LogStore, dir string) {
		synctest.Test(t, func(t *testing.T) {
			c := &crashCamera{t: t, dir: dir}
			r, peer := openCrashLeader(t, kind, c)
			lead(t, r, peer)
			testbed.Report(t, errors.Join(peer.fault, r.stop()))
			pending := 0
			for _, p := range c.points {
				if err := p.checkLeader(kind); err != nil {
					t.Errorf("killed after %s, having said %+v: %v", p.after, p.said, err)
				}
				pending += p.step // of a leader: how many entries were pending
			}
			if t.Logf("%d points, at which %d entries were pending", len(c.points), pending); pending == 0 {
				t.Error("no entry was sent before it was written")
			}
		})
	})
}

// openCrashLeader starts a replica with a slow disk, and its peer.
func openCrashLeader(t *testing.T, kind LogStore, c *crashCamera) (*crashReplica, *crashPeer) {
	peer := &crashPeer{said: said{sent: map[uint64]uint64{}}, next: 2}
	var r *crashReplica
	opened := testbed.Must(openCrashReplicaOn(c.dir, kind, func(s *Stores) error {
		return c.see(s, func(op string, do func() error) error {
			if op == "StoreLogs" {
				testbed.Pass(50 * time.Millisecond)
			}
			return c.around(op, do)
		})
	}))(t)
	r = opened
	c.says = func() (now said) {
		peer.set(func() { now = peer.said; now.sent = maps.Clone(now.sent) })
		now.committed, now.holds = max(now.committed, r.machine.last()), r.s.Holds(r.raft)
		r.s.pending.mu.Lock()
		defer r.s.pending.mu.Unlock()
		c.step = len(r.s.pending.pending)
		return now
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case rpc := <-r.wire.Consumer():
				peer.answer(rpc)
			case <-stop:
				return
			}
		}
	}()
	return r, peer
}

// lead has the replica lead, with entries pending whenever something else happens.
func lead(t *testing.T, r *crashReplica, peer *crashPeer) {
	elect := func() {
		t.Helper()
		testbed.NoErr(t, r.wire.TimeoutNow("r1", "a1", &raft.TimeoutNowRequest{RPCHeader: crashHeader("r2")}, &raft.TimeoutNowResponse{}))
		testbed.Pass(time.Second)
		if r.raft.State() != raft.Leader {
			t.Fatalf("it is a %v", r.raft.State())
		}
	}
	apply := func(n int) {
		for range n {
			r.raft.Apply([]byte("x"), 0)
			testbed.Pass(7 * time.Millisecond)
		}
	}
	elect()
	apply(20)
	testbed.Pass(time.Second)
	_, err := r.do(nil) // a snapshot
	testbed.NoErr(t, err)
	apply(5)
	elect()

	apply(5)
	var vote raft.RequestVoteResponse
	testbed.NoErr(t, r.wire.RequestVote("r1", "a1", &raft.RequestVoteRequest{
		RPCHeader: crashHeader("r2"), Term: r.raft.CurrentTerm() + 1, LastLogIndex: r.raft.LastIndex(), LastLogTerm: r.raft.CurrentTerm(), LeadershipTransfer: true,
	}, &vote))
	peer.set(func() { peer.said.term = vote.Term })
	if !vote.Granted {
		t.Error("it did not vote")
	}
	elect()

	committed := r.raft.LastIndex()
	peer.set(func() { peer.mute = true })
	apply(5)
	term := r.raft.CurrentTerm()
	_, err = follow(committed, term, term+1)(r.wire)
	testbed.NoErr(t, err)
	peer.set(func() {
		peer.said.term, peer.said.committed, peer.said.sent[committed+1] = term+1, committed+1, term+1
		peer.mute, peer.next = false, committed+2
	})
	elect()
	apply(3)
	testbed.Pass(time.Second)
}

// follow sends one entry of a term after the last one that is committed.
func follow(committed, ofTerm, term uint64) crashSend {
	return func(wire *raft.InmemTransport) (acked uint64, err error) {
		q := &raft.AppendEntriesRequest{
			RPCHeader: crashHeader("r2"), Term: term, PrevLogEntry: committed, PrevLogTerm: ofTerm, LeaderCommitIndex: committed + 1,
			Entries: []*raft.Log{crashEntry(committed+1, term)},
		}
		var a raft.AppendEntriesResponse
		if err = wire.AppendEntries("r1", "a1", q, &a); err == nil && !a.Success {
			err = fmt.Errorf("entry %d of term %d was not taken: %+v", committed+1, term, a)
		}
		return committed + 1, err
	}
}

func (p crashPoint) checkLeader(kind LogStore) error {
	s, err := testStores(p.dir, kind) // it is killed again before it does anything
	if err != nil {
		return err
	}
	base, _, err := s.readableSnapshot()
	term, err2 := s.rawVotes.GetUint64([]byte(currentTermKey))
	if err = errors.Join(err, err2); term < p.said.term {
		err = errors.Join(err, fmt.Errorf("it is in term %d", term))
	}
	for index, of := range p.said.sent {
		if index > base && (index <= max(p.said.committed, p.said.holds) || of < term) {
			var e raft.Log
			if err2 := readLog(s.rawLogs, index, &e); err2 != nil || e.Term < of {
				err = errors.Join(err, fmt.Errorf("entry %d of term %d was sent, and the directory is in term %d: %+v, %w", index, of, term, e, err2))
			}
		}
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	r, err := openCrashReplica(p.dir, kind, nil)
	if err != nil {
		return err
	}
	committed, ofTerm := max(p.said.committed, 1), max(p.said.sent[p.said.committed], 1) // entry 1 is the configuration
	_, err = r.do(follow(committed, ofTerm, p.said.term+5))
	return errors.Join(err, r.stop())
}
