package peer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// TestDeposedMasterCannotProve is why the fence exists. A leads and is paused:
// answers that B and C had sent it wait in its socket buffers. They elect a new
// leader, which acknowledges a write. A resumes and is asked to read. Raft's
// VerifyLeader takes the old answers for new ones and lets A serve the old
// value; the fence must not. The case of VerifyLeader shows that the scenario
// is the right one.
func TestDeposedMasterCannotProve(t *testing.T) {
	for name, proof := range map[string]func(*raftNode, *Fence) error{
		"VerifyLeader": func(n *raftNode, _ *Fence) error { return n.raft.VerifyLeader().Error() },
		"fence": func(_ *raftNode, f *Fence) error {
			_, err := f.Prove(context.Background())
			return err
		},
		"fence, without waiting": func(_ *raftNode, f *Fence) error {
			result := make(chan error, 1)
			f.Then(func(_ session.Instant, err error) { result <- err })
			return <-result
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := proofAfterPause(t, proof)
				if fooled := err == nil; fooled != (name == "VerifyLeader") {
					t.Errorf("the proof of a deposed leader: %v", err)
				}
			})
		})
	}
}

// proofAfterPause plays the scenario and returns the result of the deposed
// leader's proof. The leader's long timeouts imitate the pause: its timers do
// not fire while the others elect.
func proofAfterPause(t *testing.T, proof func(*raftNode, *Fence) error) error {
	wire := memnet.New()
	members := map[string]string{"r1": "a", "r2": "b", "r3": "c"}
	var nodes []*raftNode
	for _, id := range []string{"r1", "r2", "r3"} {
		timeout := 400 * time.Millisecond
		if id == "r1" {
			timeout = 30 * time.Second
		}
		nodes = append(nodes, startNode(t, nodeConfig{id: id, members: members, listen: wire.Listen(members[id]), dial: wire.Dialer(members[id]), timeout: timeout}))
	}
	defer func() {
		for _, n := range nodes {
			n.stop()
		}
	}()
	old := nodes[0]
	nodes[1].bootstrap(t, members)
	makeLeader(t, old, nodes...)
	f := old.fence()

	// Reads keep heartbeats and probes in flight. With the heartbeat interval
	// of the long timeouts alone, B and C would start an election.
	var readers sync.WaitGroup
	paused := make(chan struct{})
	readers.Go(func() {
		for {
			select {
			case <-paused:
				return
			case <-time.After(50 * time.Millisecond):
				_ = old.raft.VerifyLeader().Error() // it still considers itself the leader
			}
		}
	})
	old.apply(t, "old")
	testbed.NoErr(t, proof(old, f), "before the pause:")
	close(paused)
	readers.Wait()
	synctest.Wait() // every connection is idle, so the next question is sent at once

	wire.Hold("a")
	readers.Go(func() { _ = old.raft.VerifyLeader().Error() })  // in flight during the pause
	readers.Go(func() { _, _ = f.Prove(context.Background()) }) // also in flight; it may succeed, because it began before
	synctest.Wait()
	wire.Cut("a", "b", true)
	wire.Cut("a", "c", true)
	winner := leader(t, nodes[1:]...)
	winner.apply(t, "new")

	verdict := make(chan error, 1)
	readers.Go(func() { verdict <- proof(old, f) })
	testbed.Pass(10 * time.Millisecond)
	wire.Release("a")
	err := <-verdict
	if words := old.words.All(); words[len(words)-1] != "old" {
		t.Fatalf("the deposed leader has %v, which is not stale", words)
	}

	wire.Cut("a", "b", false)
	wire.Cut("a", "c", false)
	testbed.Await(t, "the deposed leader hearing of it", func() bool { return old.raft.State() == raft.Follower })
	if _, err := f.Prove(context.Background()); api.CodeOf(err) != api.NotMaster {
		t.Errorf("prove as a follower: %v, want NotMaster", err)
	}
	readers.Wait()
	return err
}

// TestFenceCounts tests single cases for which the model gives only bounds.
func TestFenceCounts(t *testing.T) {
	type answers map[string]uint64 // term by replica
	for name, c := range map[string]struct {
		servers []raft.Server
		answers answers
		arrange func(*fenceWorld)
		want    api.Code // OK, an error's, or Cancelled for undecided
	}{
		"alone":                     {servers: []raft.Server{server(1, raft.Voter)}, want: api.OK},
		"alone but deposed":         {servers: []raft.Server{server(1, raft.Voter)}, arrange: func(w *fenceWorld) { w.state = raft.Follower }, want: api.NotMaster},
		"nobody answers":            {servers: voterList(5), want: api.Cancelled},
		"one of five is not enough": {servers: voterList(5), answers: answers{"r2": 7}, want: api.Cancelled},
		"two of five":               {servers: voterList(5), answers: answers{"r2": 7, "r5": 6}, want: api.OK},
		"own term moved on":         {servers: voterList(3), answers: answers{"r2": 7}, arrange: func(w *fenceWorld) { w.term = 8 }, want: api.NotMaster},
		"not leader any more":       {servers: voterList(3), answers: answers{"r2": 7}, arrange: func(w *fenceWorld) { w.state = raft.Follower }, want: api.NotMaster},
		"one has moved on":          {servers: voterList(3), answers: answers{"r2": 8}, want: api.Cancelled},
		"all have moved on":         {servers: voterList(3), answers: answers{"r2": 8, "r3": 9}, want: api.NotMaster},
		"non-voters do not count":   {servers: append(voterList(3), server(4, raft.Nonvoter), server(5, raft.Nonvoter)), answers: answers{"r4": 7, "r5": 7}, want: api.Cancelled},
		"leader without a vote":     {servers: append(voterList(3)[1:], server(1, raft.Nonvoter)), answers: answers{"r2": 7}, want: api.Cancelled},
		"leader without a vote, 2":  {servers: append(voterList(3)[1:], server(1, raft.Nonvoter)), answers: answers{"r2": 7, "r3": 7}, want: api.OK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := newFenceWorld(0)
				w.servers = c.servers
				if len(c.answers) == 0 && c.arrange != nil {
					c.arrange(w)
				}
				round := testbed.Must(f.joinRound(nil))(t)
				if c.arrange != nil {
					c.arrange(w) // after the question, before the answers
				}
				if len(round.rest) > 0 {
					f.askRest(round) // ask also the voters that were left out
				}
				for _, q := range w.asked {
					if term, ok := c.answers[q.id]; ok {
						q.reply(Report{Term: term})
					}
				}
				got := api.Cancelled
				if err, ended := round.settled(); ended {
					got = api.CodeOf(err)
				}
				if got != c.want {
					t.Errorf("got %v, want %v", got, c.want)
				}
				f.Close(api.NotMaster)
			})
		})
	}
}

// TestFenceSharesRounds: however many callers there are, one round is in flight
// and one waits.
func TestFenceSharesRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newFenceWorld(3)
		defer f.Close(api.NotMaster)
		first, _ := f.joinRound(nil)
		w.now = 5
		second, _ := f.joinRound(nil)
		for range 100 {
			if r, _ := f.joinRound(nil); r != second {
				t.Fatal("a caller did not share the waiting round")
			}
		}
		f.askRest(first)
		if len(w.asked) != 2 {
			t.Fatalf("%d questions are out, want one for each other voter", len(w.asked))
		}
		w.now = 9
		w.asked[0].reply(Report{Term: 7})
		if err, ended := first.settled(); !ended || err != nil || first.t0 != 0 {
			t.Fatalf("the first round: %v, ended %v, at %d", err, ended, first.t0)
		}
		if _, ended := second.settled(); ended {
			t.Fatal("the second round ended with the first")
		}
		w.asked[1].reply(Report{Term: 7}) // the first round's other answer
		if _, ended := second.settled(); ended {
			t.Fatal("an answer to the first round counted for the second")
		}
		w.asked[2].reply(Report{Term: 7})
		if err, ended := second.settled(); !ended || err != nil || second.t0 != 9 {
			t.Fatalf("the second round: %v, ended %v, at %d", err, ended, second.t0)
		}
	})
}

// TestFenceAsksFew: a round asks only as many voters as can decide, first those
// that answered quickly the last time. It asks the others when these do not
// answer soon.
func TestFenceAsksFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newFenceWorld(5)
		defer f.Close(api.NotMaster)
		asked := func() (ids []string) {
			for _, q := range w.asked {
				ids = append(ids, q.id)
			}
			return ids
		}
		first, _ := f.joinRound(nil)
		if got := asked(); !slices.Equal(got, []string{"r2", "r3"}) {
			t.Errorf("asked at first: %v", got)
		}
		f.askRest(first)
		if got := asked(); !slices.Equal(got, []string{"r2", "r3", "r4", "r5"}) {
			t.Errorf("asked after %v: %v", fenceHedge, got)
		}
		w.asked[3].reply(Report{Term: 7})
		w.asked[2].reply(Report{Term: 7})
		if err, ended := first.settled(); !ended || err != nil {
			t.Fatalf("two of four agree: %v, ended %v", err, ended)
		}
		w.asked = nil
		testbed.NoErr(t, testbed.ErrOf(f.joinRound(nil)))
		if got := asked(); !slices.Equal(got, []string{"r5", "r4"}) {
			t.Errorf("asked in the next round: %v", got)
		}
	})
}

// TestFenceGivesUp: no majority answers, a caller gives up, or the term ends.
func TestFenceGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFenceWorld(3)
		ctx := context.Background()
		began := time.Now()
		if _, err := f.Prove(ctx); !errors.Is(err, api.Unavailable) {
			t.Errorf("no answers: %v, want Unavailable", err)
		}
		if took := time.Since(began); took != maxFenceRound {
			t.Errorf("that took %v, want %v", took, maxFenceRound)
		}

		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := f.Prove(short); !errors.Is(err, api.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's deadline: %v", err)
		}
		lost, stop := context.WithCancelCause(ctx)
		stop(api.Errorf(api.SessionExpired, "gone"))
		if _, err := f.Prove(lost); !errors.Is(err, api.SessionExpired) {
			t.Errorf("the caller's cause: %v", err)
		}

		over := api.Errorf(api.NotMaster, "the term is over")
		results := make(chan error, 4)
		for range 2 { // one in the present round or in the next, one in the next
			go func() {
				_, err := f.Prove(ctx)
				results <- err
			}()
			f.Then(func(_ session.Instant, err error) { results <- err })
		}
		synctest.Wait()
		f.Close(over)
		for range 4 {
			if err := <-results; !errors.Is(err, error(over)) {
				t.Errorf("close: %v, want its cause", err)
			}
		}
		if _, err := f.Prove(ctx); !errors.Is(err, error(over)) {
			t.Errorf("after close: %v, want its cause", err)
		}
		f.Then(func(_ session.Instant, err error) { results <- err })
		if err := <-results; !errors.Is(err, error(over)) {
			t.Errorf("then, after close: %v, want its cause", err)
		}
	})
}
