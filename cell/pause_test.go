package cell

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Others may have the mutex in between, and each hold is measured.
func TestPauseLetsOthersIn(t *testing.T) {
	now, holds := time.Duration(0), make(chan time.Duration, 1000)
	p := &pausingMutex{
		watch: func() time.Duration { return now },
		held: func(d time.Duration) {
			select {
			case holds <- d:
			default:
			}
		},
	}
	p.Lock()
	others := make(chan struct{})
	go func() {
		p.Lock()
		p.Unlock() //nolint:staticcheck // that it can be had is all
		close(others)
	}()
	waiting := true
	for n := 0; waiting && n < 1<<26; n++ {
		select {
		case <-others:
			waiting = false
		default:
			now += time.Microsecond
			p.pause(1)
		}
	}
	p.Unlock()
	if waiting {
		t.Fatal("nobody else has had the mutex")
	}
	if first := <-holds; first != maxSteps*time.Microsecond {
		t.Errorf("the first hold took %v by its watch, want %v", first, maxSteps*time.Microsecond)
	}
}

// Holding the master's mutex for long does not extend anybody's lease: the clock
// loop was not stopped, it waited.
func TestHoldsExtendNoLease(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.mu.Lock()
		m.mu.held = func(time.Duration) { m.lost.Add(int64(2 * session.MaxTick)) }
		m.mu.Unlock()
		created, err := m.createSession(t.Context(), raftfsm.CreateSession{Nonce: make([]byte, 16), Principal: "p", Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, lives := m.state().Sessions.Get(api.SessionID(created.GetId())); lives {
			t.Error("a session with a lease of a second, of which nothing is heard, lives, because every hold of the mutex takes long")
		}
	})
}
