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

// clockLoop is the only place where a master acts because time has passed: it
// ends sessions whose leases ran out and lock-delays that are over, forgets
// waiters that stayed away, and offers again what could not be proposed. It
// wakes for the next of these, and in any case often enough for Leases to
// notice that it was stopped.
func (m *master) clockLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(m.tick(m.clock()))
	}
}

// maxExpiries bounds the sessions ended in one entry, so that the end of very
// many at once does not hold up everybody else's commands.
const maxExpiries = 256

// maxForgotten bounds the waiters that one tick drops because they stayed away.
const maxForgotten = 256

// tick does what is due at now and returns how long to wait for the next time.
func (m *master) tick(now session.Instant) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	expired, gap := m.leases.Tick(now, maxExpiries)
	if gap > 0 {
		m.log.Warn("the clock loop was held up: every lease is extended by as much", "gap", gap)
	}
	ending := m.unended
	m.unended = nil
	ending = append(ending, m.losses.due(now)...)
	for _, id := range expired {
		ending = append(ending, raftfsm.End{Session: id, Reason: api.ByExpiry})
	}
	if len(ending) > 0 {
		m.submit(m.endCommand(ending))
	}

	for _, over := range m.delays.due(now) {
		m.endDelay(over)
	}
	more := m.queues.forget(now, maxForgotten)
	for _, name := range m.queues.takeRetries() {
		m.pump(name)
	}
	if dying := m.undying; len(dying) > 0 {
		m.undying = nil
		m.removeDying(dying)
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
