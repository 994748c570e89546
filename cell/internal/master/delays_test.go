package master

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// A delay is timed under its own ID: an earlier delay on the same name neither
// ends it nor replaces it.
func TestDelaysAreTimedByID(t *testing.T) {
	d := newDelays()
	d.start("/f", 5, 10, 0)
	d.start("/f", 7, 3, 1)
	if over := d.due(9); over != nil {
		t.Errorf("%v has ended at 9; the first delay on the name runs until 10", over)
	}
	d.start("/f", 5, 0, 9) // the end of the first could not be proposed
	if over, want := d.due(10), []delayOver{{"/f", 7}}; !slices.Equal(over, want) {
		t.Errorf("at 10 over: %v, want %v", over, want)
	}
	d.start("/f", 7, 0, 11)
	d.start("/f", 8, 5, 11)
	d.start("/f", 7, 0, 12)
	if over := d.due(15); over != nil {
		t.Errorf("%v has ended at 15; the latest delay runs until 16", over)
	}
}

// unobserved is the log of a solo master that gets the results late.
type unobserved struct {
	*soloMaster
	applied func(e raftfsm.Entry)
}

func (u unobserved) Append(data []byte) ([]raftfsm.Result, error) {
	results, err := u.soloMaster.Append(data)
	e, broken := raftfsm.DecodeEntry(data)
	if broken != nil {
		panic(broken)
	}
	u.applied(e)
	return results, err
}

// Two clients hold a lock together, and each fails. When the first delay has
// ended, the end of the second session has been applied, and the master has not
// observed it yet. The state shows the second delay already, and it has to run
// its own full time.
func TestDelayOfTheSecondHolder(t *testing.T) {
	const delay = 3 * time.Second
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		a, b, w := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		claim := func(c *soloClient, h Handle, mode api.LockMode, delay time.Duration) raftfsm.Claim {
			return raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: mode, Delay: delay}
		}
		for _, c := range []*soloClient{a, b} {
			h := c.open(t, "/ls/local/f", api.MayCreate).Handle
			if _, err := m.Locks.TryAcquire(t.Context(), requestFor(claim(c, h, api.Shared, delay), h)); err != nil {
				t.Fatal(err)
			}
		}
		h := w.open(t, "/ls/local/f", api.MayCreate).Handle
		granted := make(chan session.Instant, 1)
		go func() {
			if _, err := m.Locks.Acquire(t.Context(), requestFor(claim(w, h, api.Exclusive, 0), h)); err != nil {
				t.Error(err)
			}
			granted <- m.epoch.clock()
		}()
		synctest.Wait()
		expire := func(c *soloClient) {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			m.tables.leases.Stop(c.who.Session)
			one, _ := m.Locks.offers.endCommand([]raftfsm.End{{Session: c.who.Session, Reason: api.ByExpiry}})
			m.epoch.submit(one)
		}
		expire(a)
		synctest.Wait()
		<-time.After(delay - time.Millisecond)
		m.epoch.proposer.entries.log = unobserved{m, func(e raftfsm.Entry) {
			if e.Commands[0].EndSessions != nil {
				<-time.After(2 * time.Millisecond) // the first delay ends meanwhile
			}
		}}
		ended := m.epoch.clock()
		expire(b)
		if held := (<-granted).Sub(ended); held < delay {
			t.Errorf("a writer has the lock %v after a holder with a lock-delay of %v failed", held, delay)
		}
	})
}
