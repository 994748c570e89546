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
// was, and not how long the loop waited for the mutex: if that counted, clients that can
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

// maxForgotten bounds the waiters that one tick drops because they stayed away.
const maxForgotten = 256

// maxOwned bounds the nodes that sessions which end in one entry own together, unless it
// is one session only.
const maxOwned = 1024

// affordable says how many of the sessions are to end in one entry: as many as own no
// more than maxOwned nodes together, but one at least. m.mu is held, and released in
// between.
func (m *master) affordable(ends []raftfsm.End) int {
	state, owned := m.state(), 0
	for i, end := range ends {
		for range state.Tree.OwnedBy(end.Session) {
			if owned++; owned > maxOwned {
				return max(i, 1)
			}
			m.mu.pause(1)
		}
	}
	return len(ends)
}

// tick does what is due at now, after the loop has slept for so long, and returns
// how long to sleep until the next time.
func (m *master) tick(now session.Instant, slept time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	expired, forgiven := m.leases.Tick(now, slept, maxExpiries)
	if forgiven > 0 {
		m.log.Warn("the replica was stopped, or starved of processor time: every lease is extended", "stopped", slept, "extended", forgiven)
	}
	ending, more := m.outbox.takeEnds()
	ending = append(ending, m.losses.due(now)...)
	for _, id := range expired {
		ending = append(ending, raftfsm.End{Session: id, Reason: api.ByExpiry})
	}
	ends := m.affordable(ending)
	for _, end := range ending[ends:] {
		m.endAgain(end)
	}
	for left := ending[:ends]; len(left) > 0; {
		var c raftfsm.Command
		c, left = m.endCommand(left)
		m.submit(c)
		m.mu.pause(1)
	}

	delays := m.delays.due(now)
	for _, over := range delays {
		m.endDelay(over)
		m.mu.pause(m.queues.weight(over.name))
	}
	more = m.queues.forget(now, maxForgotten) || more
	requests, left := m.outbox.takeRequests()
	more = more || left
	for _, w := range requests {
		m.settle(w)
	}
	evictions, left := m.outbox.takeEvictions()
	more = more || left
	for _, c := range evictions {
		m.evict(*c)
	}
	locks, left := m.outbox.takeLocks()
	more = more || left
	for _, name := range locks {
		m.pump(name)
		m.mu.pause(m.queues.weight(name))
	}
	if len(expired) == maxExpiries || len(delays) == maxDue || ends < len(ending) || more {
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
