package master

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// slowLog is a log on which each entry takes a while.
type slowLog time.Duration

func (l slowLog) Append(entry []byte) ([]raftfsm.Result, error) {
	testbed.Pass(time.Duration(l))
	e, err := raftfsm.DecodeEntry(entry)
	return make([]raftfsm.Result, len(e.Commands)), err
}

// Sixty-four callers whose entries take long come back within some milliseconds, and share the next entry: they do not become two groups, of
// which each waits for the other's entry. Without distance no caller waits, and nor does one alone.
func TestAnsweredCallersShareAnEntry(t *testing.T) {
	for name, c := range map[string]struct {
		entry   time.Duration // what an entry takes
		callers int
		back    time.Duration // a caller comes back within that
		most    time.Duration // what a command takes on the average

		strangers bool // each command is of another session, as of callers that do not come back
	}{
		"a far log":                    {20 * time.Millisecond, 64, 4 * time.Millisecond, 24 * time.Millisecond, false},
		"a far log, and busy machines": {20 * time.Millisecond, 64, 14 * time.Millisecond, 31 * time.Millisecond, false},
		"a near log":                   {time.Millisecond, 64, 500 * time.Microsecond, 2 * time.Millisecond, false},
		"one caller of a far log":      {20 * time.Millisecond, 1, 4 * time.Millisecond, 20 * time.Millisecond, false},
		"callers that come back later": {20 * time.Millisecond, 2, 200 * time.Millisecond, 23 * time.Millisecond, false},
		"callers at random times":      {20 * time.Millisecond, 64, 200 * time.Millisecond, 31800 * time.Microsecond, false},
		"callers that do not return":   {20 * time.Millisecond, 64, 200 * time.Millisecond, 31600 * time.Microsecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := untimed(slowLog(c.entry))
				n.clock = testbed.Clock()
				p := newProposer(n, func([]*proposal, []raftfsm.Result, error) {})
				go p.runProposer(t.Context())
				var took, commands time.Duration
				var mu sync.Mutex
				var callers sync.WaitGroup
				for i := range c.callers {
					callers.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(i), 1))
						for range 100 {
							testbed.Pass(time.Duration(rng.Int64N(int64(c.back))))
							began := n.clock()
							one := newProposal(raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}, raftfsm.MaxLevel, false, nil)
							if one.by = api.SessionID(i + 1); c.strangers {
								one.by = api.SessionID(rng.Uint64())
							}
							if err := p.enqueue(one); err != nil {
								t.Error(err)
							}
							<-one.done
							mu.Lock()
							took, commands = took+n.clock().Sub(began), commands+1
							mu.Unlock()
						}
					})
				}
				callers.Wait()
				if took /= commands; took > c.most {
					t.Errorf("a command takes %v, want at most %v", took, c.most)
				}
			})
		})
	}
}

// A command that is by itself a whole entry waits for no other.
func TestFullEntriesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := untimed(slowLog(100 * time.Millisecond))
		n.clock = testbed.Clock()
		p := newProposer(n, func([]*proposal, []raftfsm.Result, error) {})
		p.limits.batch = 1
		go p.runProposer(t.Context())
		var last *proposal
		for range 40 {
			last = newProposal(raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}, raftfsm.MaxLevel, false, nil)
			last.by = 1
			noErr(t, p.enqueue(last))
		}
		if <-last.done; n.clock() > session.Instant(4*time.Second) {
			t.Errorf("40 entries of 100 ms took %v", time.Duration(n.clock()))
		}
	})
}

// The clock counts a machine's sleep. An entry that was on its way meanwhile delays nobody by a part of it.
func TestSuspendedProposer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		n, awake := untimed(slowLog(20*time.Millisecond)), testbed.Clock()
		n.clock = func() session.Instant { return awake().Add(slept) }
		p := newProposer(n, func([]*proposal, []raftfsm.Result, error) { slept = 8 * time.Hour })
		go p.runProposer(t.Context())
		put := func() *proposal {
			one := newProposal(raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}, raftfsm.MaxLevel, false, nil)
			one.by = 1
			noErr(t, p.enqueue(one))
			return one
		}
		for range 64 {
			put()
		}
		testbed.Pass(50 * time.Millisecond)
		began := awake()
		if <-put().done; awake().Sub(began) > time.Second {
			t.Errorf("a command took %v", awake().Sub(began))
		}
	})
}
