package clientprom

import (
	"errors"
	"sync"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/session"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what sessions count together. It implements prometheus.Collector, and its methods
// may be called from several goroutines.
type Metrics struct {
	calls        *callTimes
	waits, holds *modeTimes
	connections  prometheus.Counter
	reconnects   prometheus.Counter

	mu     sync.Mutex // guards what follows; mutexes of package client may be taken while it is held
	open   map[*client.Client]struct{}
	closed totals // of sessions that were closed
}

// New returns metrics of no session yet.
func New() *Metrics {
	return &Metrics{
		calls:       newCallTimes(),
		waits:       newModeTimes("lock_wait_seconds", "Time from Acquire to the lock that it returned."),
		holds:       newModeTimes("lock_hold_seconds", "Time from the moment at which Acquire or TryAcquire returned a lock until its owner released it, also if it was lost before."),
		connections: counter("connections_total", "Connections made to replicas."),
		reconnects:  counter("reconnects_total", "Connections that took the place of one that had ended."),
		open:        map[*client.Client]struct{}{},
	}
}

const namespace = "chubbyclient"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

// Meter returns what Config.Meter is to be set to.
func (m *Metrics) Meter() *client.Meter {
	return &client.Meter{
		Opened: m.sessionOpened, Closed: m.sessionClosed, Called: m.calls.called,
		Acquired: m.waits.observe, Released: m.holds.observe, Connected: m.connected,
	}
}

func (m *Metrics) connected(again bool) {
	m.connections.Inc()
	if again {
		m.reconnects.Inc()
	}
}

func (m *Metrics) sessionOpened(c *client.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[c] = struct{}{}
	m.closed.opened++
}

// sessionClosed keeps what a session has counted, so that no counter goes back.
func (m *Metrics) sessionClosed(c *client.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.open[c]; ok {
		delete(m.open, c)
		m.closed.add(c)
	}
}

// totals are the counts of several sessions.
type totals struct {
	opened, lost uint64
	stats        client.Stats // the counts that only grow
}

func (t *totals) add(c *client.Client) {
	if err := c.Err(); err != nil && !errors.Is(err, client.Closed) {
		t.lost++
	}
	s, to := c.Stats(), &t.stats
	to.KeepAlives += s.KeepAlives
	to.KeepAlivesFailed += s.KeepAlivesFailed
	to.Jeopardies += s.Jeopardies
	to.Rescues += s.Rescues
	to.FailOvers += s.FailOvers
	to.Attempts += s.Attempts
	to.EventsDelivered += s.EventsDelivered
	to.EventsDropped += s.EventsDropped
	to.Cache.Hits += s.Cache.Hits
	to.Cache.Misses += s.Cache.Misses
	to.Cache.Invalidations += s.Cache.Invalidations
	to.Cache.Flushes += s.Cache.Flushes
}

// present is what the open sessions have now.
type present struct {
	states    map[session.State]int
	leastLeft time.Duration // of those whose lease counts still
	leased    int           // how many those are
	stats     client.Stats  // the values that are of now
}

func (p *present) add(c *client.Client) {
	state := c.State()
	p.states[state]++
	if left := c.Left(); state != session.Gone {
		if p.leased == 0 || left < p.leastLeft {
			p.leastLeft = left
		}
		p.leased++
	}
	s, to := c.Stats(), &p.stats
	to.EventsWaiting += s.EventsWaiting
	to.Handles += s.Handles
	to.QueuePlaces += s.QueuePlaces
	to.Cache.Entries += s.Cache.Entries
	to.Cache.Bytes += s.Cache.Bytes
}

// look returns what all sessions have counted, and what the open ones have now.
func (m *Metrics) look() (all totals, now present) {
	now.states = map[session.State]int{}
	m.mu.Lock()
	defer m.mu.Unlock()
	all = m.closed
	for c := range m.open {
		all.add(c)
		now.add(c)
	}
	return all, now
}
