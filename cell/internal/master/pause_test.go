package master

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Others may have the mutex in between, and each hold is measured separately.
func TestPauseLetsOthersIn(t *testing.T) {
	now := time.Duration(0)
	var longest atomic.Int64 // hold; told without the mutex, so in any order
	p := &pausingMutex{
		watch: func() time.Duration { return now },
		held: func(d time.Duration) {
			for was := longest.Load(); int64(d) > was && !longest.CompareAndSwap(was, int64(d)); was = longest.Load() {
			}
		},
	}
	h := p.hold()
	others := make(chan struct{})
	go func() {
		p.Lock()
		p.Unlock() //nolint:staticcheck // it is enough that the lock was free
		close(others)
	}()
	waiting := true
	for n := 0; waiting && n < 1<<26; n++ {
		select {
		case <-others:
			waiting = false
		default:
			now += time.Microsecond
			h.pause(1)
		}
	}
	h.end()
	stopIf(t, waiting, "no other goroutine has had the mutex")
	equal(t, time.Duration(longest.Load()), maxSteps*time.Microsecond, "the longest hold took %v by its watch")
}

// However many patient holders there are, others wait for only a few of their holds.
func TestPatientHoldersLetOthersGoFirst(t *testing.T) {
	const crowd = 400
	var holds atomic.Int64
	p := &pausingMutex{held: func(time.Duration) { holds.Add(1) }}
	var stop atomic.Bool
	var started, work sync.WaitGroup
	for range crowd {
		started.Add(1)
		work.Go(func() {
			spun := 0
			h := p.holdPatiently()
			h.pause(maxSteps)
			started.Done()
			for !stop.Load() {
				for range 100_000 { // far more than a goroutine may overtake waiting ones
					spun++
				}
				h.pause(maxSteps)
			}
			h.end()
		})
	}
	started.Wait()
	fewest := int64(crowd)
	for range 3 {
		before := holds.Load()
		p.Lock()
		fewest = min(fewest, holds.Load()-before)
		p.Unlock()
	}
	stop.Store(true)
	work.Wait()
	failIf(t, fewest > crowd/4, "%d holds of others while one waited for the mutex", fewest)
}

// The first hold of a patient holder is short, because there may be very many holders.
func TestPatientHoldersBeginShortly(t *testing.T) {
	now := time.Duration(0)
	var holds []time.Duration
	p := &pausingMutex{watch: func() time.Duration { return now }, held: func(d time.Duration) { holds = append(holds, d) }}
	h := p.holdPatiently()
	for range fewSteps + maxSteps {
		now += time.Microsecond
		h.pause(1)
	}
	h.end()
	if want := []time.Duration{fewSteps * time.Microsecond, maxSteps * time.Microsecond, 0}; !slices.Equal(holds, want) {
		t.Errorf("the holds took %v, want %v", holds, want)
	}
}

// Holding the master's mutex for long extends no lease: the process was not stopped.
func TestHoldsExtendNoLease(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		id := m.clientOf(t, 1, func(c *raftfsm.CreateSession) { c.Lease = time.Second }).who.Session
		m.epoch.mu.Lock()
		m.epoch.mu.held = func(time.Duration) {
			for range 4 { // as the goroutine that watches for pauses does meanwhile
				m.lost.Add(int64(session.MaxTick / 2))
				m.timekeeper.pauses.look()
			}
		}
		m.epoch.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, lives := m.epoch.state().Sessions.Get(id); lives {
			t.Error("a session with a lease of a second and without KeepAlives lives, because every hold of the mutex takes long")
		}
	})
}

// A process that is stopped while its clock loop is at work, or waits for the mutex, ends no session by that.
func TestStopDuringATickEndsNoSession(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		id := m.clientOf(t, 1, func(c *raftfsm.CreateSession) { c.Lease = 10 * time.Second }).who.Session
		var stops atomic.Int64
		m.epoch.mu.Lock()
		m.epoch.mu.held = func(time.Duration) { // the loop's hold among others
			stops.Add(1)
			m.lost.Add(int64(time.Hour))
		}
		m.epoch.mu.Unlock()
		time.Sleep(5 * time.Second)
		m.locked(func() { m.epoch.mu.held = nil })
		synctest.Wait()
		if _, lives := m.epoch.state().Sessions.Get(id); !lives || stops.Load() < 5 {
			t.Errorf("after %d stops of an hour within 5 s, a session with a lease of 10 s lives: %v", stops.Load(), lives)
		}
	})
}

// A clock loop that waits for the mutex for long was not stopped.
func TestBusyLoopExtendsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := newPauses(func() session.Instant { return session.Instant(time.Since(began)) })
		ctx, cancel := context.WithCancel(t.Context())
		go p.watch(ctx)
		time.Sleep(10 * time.Second)
		if _, forgiven := p.take(); forgiven != 0 {
			t.Errorf("%v are forgiven because nobody has asked for 10 s", forgiven)
		}
		cancel()
	})
}

// A process that is stopped while its master takes over ends no session by that.
func TestStopDuringATakeoverEndsNoSession(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		id := m.client(t, 1).who.Session
		m.starting.once(func() {
			m.epoch.mu.maxStepsOverride = 1
			m.epoch.mu.held = func(time.Duration) { // a stop of a minute, once, in the midst of Start
				m.lost.CompareAndSwap(0, int64(time.Minute))
			}
		})
		m.failOver(t)
		m.locked(func() { m.epoch.mu.held = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		stopIf(t, m.lost.Load() == 0, "no stop happened")
		if _, lives := m.epoch.state().Sessions.Get(id); !lives {
			t.Error("a session with a lease of 12 s, inherited by this master, was ended within a second of its takeover, because the process was stopped during Start")
		}
	})
}
