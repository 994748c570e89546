package cell

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// wallClock is seconds since 1970, for people to read: it goes into "since"
// columns and is never compared.
func wallClock() int64 { return time.Now().Unix() }

// stopwatch returns a clock that is cheap to read and good for nothing but to
// measure how long something took.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// clockLoop is the only place where a master acts because time has passed: it
// ends sessions whose leases ran out and lock-delays that are over, forgets
// waiters that stayed away, and offers again what could not be proposed. It
// wakes for the next of these, and in any case often enough for Leases to
// notice that the process was stopped. It is Leases that is told how long each sleep
// was, and not how long the loop waited for the mutex: if that counted, whoever can
// make others hold the mutex for long could keep sessions alive.
func (m *master) clockLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	asleep := m.clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		awake := m.clock()
		next := m.tick(awake, awake.Sub(asleep))
		asleep = m.clock()
		timer.Reset(next)
	}
}

// maxExpiries bounds the sessions ended in one entry, so that the end of very
// many at once does not hold up everybody else's commands.
const maxExpiries = 256

// maxForgotten bounds the waiters that one tick drops because they stayed away.
const maxForgotten = 256

// tick does what is due at now, after the loop has slept for so long, and returns
// how long to sleep until the next time.
func (m *master) tick(now session.Instant, slept time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	expired, forgiven := m.leases.Tick(now, slept, maxExpiries)
	if forgiven > 0 {
		m.log.Warn("the replica was stopped, or starved of processor time: every lease is extended", "stopped", slept, "extended", forgiven)
	}
	ending := m.unended
	m.unended = nil
	ending = append(ending, m.losses.due(now)...)
	for _, id := range expired {
		ending = append(ending, raftfsm.End{Session: id, Reason: api.ByExpiry})
	}
	for _, c := range m.endCommands(ending) {
		m.submit(c)
	}

	for _, over := range m.delays.due(now) {
		m.endDelay(over)
	}
	more := m.queues.forget(now, maxForgotten)
	for _, name := range m.queues.takeRetries() {
		m.pump(name)
	}
	if len(expired) == maxExpiries || more {
		return time.Millisecond
	}
	next := now.Add(session.MaxTick / 2)
	for _, at := range []func() (session.Instant, bool){m.leases.Next, m.delays.next, m.losses.next} {
		if t, ok := at(); ok {
			next = min(next, t)
		}
	}
	return max(next.Sub(now), time.Millisecond)
}
