package peer

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// fenceWorld is everything that a fence uses, under the test's control. It
// keeps questions until the test answers them.
type fenceWorld struct {
	now     session.Instant
	term    uint64
	state   raft.RaftState
	servers []raft.Server
	asked   []fenceQuestion
}

type fenceQuestion struct {
	id    string
	at    session.Instant
	reply func(Report)
}

func (w *fenceWorld) CurrentTerm() uint64   { return w.term }
func (w *fenceWorld) State() raft.RaftState { return w.state }

func (w *fenceWorld) GetConfiguration() raft.ConfigurationFuture {
	return fixedConfiguration{servers: w.servers}
}

// fixedConfiguration is a completed raft.ConfigurationFuture.
type fixedConfiguration struct{ servers []raft.Server }

func (c fixedConfiguration) Error() error  { return nil }
func (c fixedConfiguration) Index() uint64 { return 1 }

func (c fixedConfiguration) Configuration() raft.Configuration {
	return raft.Configuration{Servers: c.servers}
}

// newFenceWorld has that many voters, of which r1 leads term 7.
func newFenceWorld(voters int) (*fenceWorld, *Fence) {
	w := &fenceWorld{term: 7, state: raft.Leader}
	for i := range voters {
		w.servers = append(w.servers, server(i+1, raft.Voter))
	}
	return w, NewFence(FenceConfig{
		Term: 7, Self: "r1", Raft: w, Hint: func() string { return "r2.client" }, Ended: func(time.Duration, error) {},
		Clock: func() session.Instant { return w.now },
		Ask: func(id, _ string, reply func(Report)) {
			w.asked = append(w.asked, fenceQuestion{id, w.now, reply})
		},
	})
}

func server(i int, suffrage raft.ServerSuffrage) raft.Server {
	id := string(rune('0' + i))
	return raft.Server{ID: raft.ServerID("r" + id), Address: raft.ServerAddress("h" + id), Suffrage: suffrage}
}

// settled returns a round's result, false if it has not ended.
func (r *fenceRound) settled() (error, bool) {
	select {
	case <-r.done:
		return r.err, true
	default:
		return nil, false
	}
}

// TestFenceAgainstModel runs callers, answers, elections and membership changes
// in any order and compares each round's result with a naive count over the
// whole history.
func TestFenceAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, f := newFenceWorld(rapid.IntRange(1, 5).Draw(t, "voters"))
		f.hedge = time.Hour // so that no hedge begins
		type waiter struct {
			round *fenceRound
			came  session.Instant
		}
		var waiters []waiter
		var answers []struct { // every answer, with the time of its question
			fenceQuestion
			term uint64
		}
		began := map[*fenceRound][]raft.Server{}
		note := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.round != nil && began[f.round] == nil {
				began[f.round] = w.servers
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				w.now++
				round, err := f.joinRound(nil)
				if err != nil {
					t.Fatalf("join: %v", err)
				}
				waiters = append(waiters, waiter{round, w.now})
			},
			"answer": func(t *rapid.T) {
				if len(w.asked) == 0 {
					return
				}
				w.now++
				i := rapid.IntRange(0, len(w.asked)-1).Draw(t, "question")
				q := w.asked[i]
				w.asked = append(w.asked[:i:i], w.asked[i+1:]...)
				term := rapid.SampledFrom([]uint64{3, 7, 7, 7, 8}).Draw(t, "term")
				answers = append(answers, struct {
					fenceQuestion
					term uint64
				}{q, term})
				q.reply(Report{Term: term})
			},
			"depose": func(t *rapid.T) {
				w.term, w.state = rapid.SampledFrom([]uint64{7, 7, 8}).Draw(t, "own term"), rapid.SampledFrom([]raft.RaftState{raft.Leader, raft.Leader, raft.Follower}).Draw(t, "state")
			},
			"change members": func(t *rapid.T) {
				i := rapid.IntRange(0, len(w.servers)-1).Draw(t, "member")
				changed := append([]raft.Server{}, w.servers...)
				changed[i].Suffrage = rapid.SampledFrom([]raft.ServerSuffrage{raft.Voter, raft.Nonvoter}).Draw(t, "suffrage")
				w.servers = changed
			},
			"": func(t *rapid.T) {
				note()
				for _, c := range waiters {
					err, ended := c.round.settled()
					if !ended || err != nil {
						continue
					}
					if c.round.t0 < c.came {
						t.Fatalf("a caller that came at %d was released by a proof of %d", c.came, c.round.t0)
					}
					voters, agree := 0, 0
					for _, s := range began[c.round] {
						if s.Suffrage != raft.Voter {
							continue
						}
						voters++
						ok := s.ID == "r1"
						for _, a := range answers {
							ok = ok || raft.ServerID(a.id) == s.ID && a.at >= c.round.t0 && a.term <= 7
						}
						if ok {
							agree++
						}
					}
					if began[c.round] != nil && agree <= voters/2 {
						t.Fatalf("%d of %d voters make a proof", agree, voters)
					}
				}
			},
		})
	})
}

func voterList(n int) []raft.Server {
	var list []raft.Server
	for i := range n {
		list = append(list, server(i+1, raft.Voter))
	}
	return list
}
