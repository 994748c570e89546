package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/raftfsm"
)

// The master's epoch ends, or it cuts off a session, while the log is being asked to grant a lock.
// The master does not know the result: it answers neither that the request was refused, nor that
// nothing was done. For a request about which the log was not asked, it says so.
func TestEndOfEpochIsNoRefusal(t *testing.T) {
	for what, end := range map[string]func(m *soloMaster, c *soloClient){
		"epoch": func(m *soloMaster, _ *soloClient) { m.end(api.Errorf(api.NotMaster, "another is")) },
		"session": func(m *soloMaster, c *soloClient) {
			m.epoch.mu.Lock()
			defer m.epoch.mu.Unlock()
			m.revocations.stopLease(c.who.Session, "it is slow")
		},
	} {
		t.Run(what, func(t *testing.T) {
			inSolo(t, nil, func(t *testing.T, m *soloMaster) {
				c, h := lockers(t, m)
				entered, leave := make(chan struct{}), make(chan struct{})
				m.applying = func() {
					m.applying = nil
					close(entered)
					<-leave
				}
				first := c[0].wait(t.Context(), h[0], c[0].claim(h[0], api.Exclusive))
				<-entered
				end(m, c[0])
				if a := answered(t, first); !errors.Is(a.err, api.Uncertain) {
					t.Errorf("the answer to a claim that the log may grant: %v", a.err)
				}
				close(leave)
			})
		})
	}
}

// A request that only waits is answered that there is another master: nothing
// was done.
func TestEndOfEpochIsToldToWaiters(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		m.end(api.Errorf(api.NotMaster, "another is"))
		if a := answered(t, waits); !errors.Is(a.err, api.NotMaster) {
			t.Error(a.err)
		}
	})
}

// The same for a request about which the log was asked by an entry with an
// unknown result.
func TestDoubtStays(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		c, h := lockers(t, m)
		got := c[0].try(t, h[0], api.Exclusive)
		waits := c[1].wait(t.Context(), h[1], c[1].claim(h[1], api.Exclusive))
		m.losing.Store(true) // the leadership, with the entry on its way
		if err := m.Locks.Release(t.Context(), c[0].mutation(), h[0], got.Generation); !errors.Is(err, api.Uncertain) {
			t.Fatal(err)
		}
		m.end(api.Errorf(api.NotMaster, "another is"))
		if a := answered(t, waits); !errors.Is(a.err, api.Uncertain) {
			t.Error(a.err)
		}
	})
}

// When an epoch ends, every command that was handed over is answered, also
// those that came while the last entry was on its way.
func TestProposalsAreAnsweredAtTheEnd(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := newProposer(m, 1, func() int64 { return 0 }, func([]raftfsm.Command, []steps.RequestID, []raftfsm.Result, error) {})
		c := raftfsm.Command{EndSessions: &raftfsm.EndSessions{}}
		propose := func() error {
			one := newProposal(c, raftfsm.MaxLevel, false, nil)
			if err := p.enqueue(one); err != nil {
				return err
			}
			_, err := one.await(t.Context())
			return err
		}
		late := make(chan error, 1)
		m.applying = func() {
			m.applying = nil
			go func() { late <- propose() }()
			synctest.Wait()
			cancel(api.Errorf(api.NotMaster, "deposed"))
		}
		go p.runProposer(ctx)
		if err := propose(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-late:
			if !errors.Is(err, api.NotMaster) {
				t.Error(err)
			}
		default:
			t.Fatal("a proposal was forgotten")
		}
	})
}
