package session_test

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// rules are the rules of a history. The zero rules are the right ones.
type rules struct {
	newView func() view // nil: Local

	// Departures from the duties of a master.
	proofLate      bool // t0 is read when the proof succeeds, not when it begins
	proofSkipped   bool // the master does not check that its epoch goes on
	parkedLong     bool // Parked is counted up to the reply, not up to t0
	takeoverShort  bool // a new master starts leases at the default length, not at the longest granted
	expiringRaised bool // an EXPIRING session is granted leases
	stoppedAtOnce  bool // a session that an operator ends is ended before the end of the promise to it
	delayForgotten bool // a new master does not wait for a lock-delay that its predecessor began
}

// world is the state of one history.
type world struct {
	rules
	choose func(what string, low, high int64) int64 // a number from low to high

	client  session.Instant // its clock
	view    view            // nil before the first reply
	sent    []session.Instant
	replies []message
	masters []*master // the last is the present one; the others do not know that they were deposed

	longest   time.Duration // the longest lease that may be granted, in the table
	lockDelay time.Duration
	ended     bool // the session
	free      bool // the lock: another handle may have it
	fault     error
}

// master is the master of one epoch, with its own clock.
type master struct {
	now      session.Instant
	epoch    api.Epoch
	leases   *session.Leases
	pauses   *session.Pauses
	longest  time.Duration // as of the end of its epoch
	parked   []message
	proving  []message
	expiring bool
	endFrom  session.Instant // when EXPIRING: its end is not proposed before this
	delayEnd session.Instant // of the lock, once the session ended
}

// message is a request on its way through a master, and its reply.
type message struct {
	sent    session.Instant // by the client's clock
	receipt session.Instant // by the master's
	t0      session.Instant // by the master's
	proven  bool            // no later epoch had begun when the proof began
	grant   session.Grant
}

func newWorld(choose func(string, int64, int64) int64, r rules) *world {
	w := &world{rules: r, choose: choose, longest: api.DefaultLease}
	w.lockDelay = time.Duration(choose("lock-delay", 0, 60)) * time.Second
	w.client = session.Instant(choose("client's origin", -1e15, 1e15))
	w.takeOver()
	return w
}

func (w *world) master() *master { return w.masters[len(w.masters)-1] }

func (w *world) takeOver() {
	m := &master{epoch: api.Epoch(len(w.masters) + 1), now: session.Instant(w.choose("master's origin", -1e15, 1e15)), longest: w.longest}
	m.leases, m.pauses = session.NewLeases(), session.NewPauses(m.now)
	length := w.longest
	if w.takeoverShort {
		length = api.DefaultLease
	}
	if !w.ended {
		m.leases.Inherit(theSession, length, m.now)
	} else if m.delayEnd = m.now; !w.delayForgotten {
		m.delayEnd = m.now.Add(w.lockDelay)
	}
	w.masters = append(w.masters, m)
}

// act does one possible next thing.
func (w *world) act() {
	m := w.master()
	if w.choose("at a deposed master", 0, 3) == 0 {
		m = w.masters[w.choose("which master", 0, int64(len(w.masters)-1))]
	}
	switch w.choose("what", 0, 11) {
	case 0, 1:
		w.sent = append(w.sent, w.client)
	case 2, 3:
		if request, ok := take(w, &w.sent, "request"); ok {
			m.parked = append(m.parked, message{sent: request, receipt: m.now})
		}
	case 4:
		if r, ok := take(w, &m.parked, "parked"); ok {
			r.t0, r.proven = m.now, m == w.master()
			m.proving = append(m.proving, r)
		}
	case 5, 6:
		if r, ok := take(w, &m.proving, "proof"); ok && (r.proven || w.proofSkipped) {
			w.grant(m, r)
		}
	case 7, 8:
		w.deliver()
	case 9, 10:
		w.wait()
	case 11:
		w.seldom()
	}
}

func (w *world) seldom() {
	m := w.master()
	switch w.choose("seldom", 0, 5) {
	case 0, 1:
		if len(w.masters) < 4 {
			w.takeOver()
		}
	case 2:
		if end, ok := m.leases.Stop(theSession); ok && !m.expiring {
			m.expiring, m.endFrom = true, end
			if w.stoppedAtOnce {
				m.endFrom = m.now
			}
		}
	case 3, 4: // a longer lease, committed before it is granted
		w.longest = max(w.longest, time.Duration(w.choose("lease", 12, 60))*time.Second)
		m.longest = w.longest
	case 5:
		take(w, &w.sent, "lost request")
		take(w, &w.replies, "lost reply")
	}
}

func take[E any](w *world, from *[]E, what string) (e E, ok bool) {
	if len(*from) == 0 {
		return e, false
	}
	i := w.choose(what, 0, int64(len(*from)-1))
	e = (*from)[i]
	*from = append((*from)[:i:i], (*from)[i+1:]...)
	return e, true
}

// grant handles a proof that succeeded.
func (w *world) grant(m *master, r message) {
	lease := m.longest
	if w.choose("shorter", 0, 3) == 0 {
		lease = time.Duration(w.choose("lease", 1, int64(lease/time.Second))) * time.Second
	}
	if w.proofLate {
		r.t0 = m.now
	}
	number, ok := m.leases.Grant(theSession, lease, r.t0)
	if !ok && w.expiringRaised {
		number, ok = 1000, true
	}
	if !ok {
		return
	}
	r.grant = session.Grant{Epoch: m.epoch, Number: number, Lease: lease, Parked: r.t0.Sub(r.receipt)}
	if w.parkedLong {
		r.grant.Parked = m.now.Sub(r.receipt)
	}
	w.replies = append(w.replies, r)
}

func (w *world) deliver() {
	r, ok := take(w, &w.replies, "reply")
	if !ok {
		return
	}
	if w.choose("twice", 0, 5) == 0 {
		w.replies = append(w.replies, r)
	}
	if w.view == nil {
		w.view = &localView{}
		if w.newView != nil {
			w.view = w.newView()
		}
	}
	w.view.extend(r.sent, w.client, r.grant)
	w.look()
}

// wait lets time pass: some, or exactly until the end of the lease or of the
// lock-delay by the clock of the present master, with every clock at its own
// rate.
func (w *world) wait() {
	m := w.master()
	longest := []int64{100e6, 2e9, 8e9}[w.choose("length of wait", 0, 2)]
	until := m.now.Add(time.Duration(w.choose("how long", 0, longest)))
	if end, ok := m.leases.End(theSession); ok && w.view != nil && w.choose("until the lease ends", 0, 5) == 0 {
		until = end
	}
	if w.ended && w.choose("until the delay ends", 0, 1) == 0 {
		until = m.delayEnd
	}
	clocks := []*session.Instant{&w.client}
	for _, m := range w.masters {
		clocks = append(clocks, &m.now)
	}
	rates := make([]int64, len(clocks)) // in thousandths of the fastest
	for i := range rates {
		rates[i] = []int64{990, 1000, w.choose("rate", 990, 1000)}[w.choose("kind of rate", 0, 2)]
	}
	pass := func(d time.Duration) {
		for i, c := range clocks {
			*c = c.Add((d*time.Duration(rates[i]) + 999) / 1000)
		}
	}
	if w.choose("pause", 0, 9) == 0 { // no clock loop runs
		pass(max(until.Sub(m.now), 0))
		return
	}
	commits := w.choose("commits", 0, 2) > 0
	for m.now < until {
		pass(min(until.Sub(m.now), session.MaxTick))
		w.tick(commits)
	}
}

// tick runs the clock loops of all masters. Only that of the present master has
// any effect.
func (w *world) tick(commits bool) {
	for _, m := range w.masters {
		m.pauses.Look(m.now)
		if expired := m.leases.Tick(m.now, m.pauses.Take(), 1); len(expired) > 0 {
			m.expiring, m.endFrom = true, m.now
		}
	}
	m := w.master()
	if m.expiring && m.now >= m.endFrom && commits && !w.ended {
		w.ended, m.delayEnd = true, m.now.Add(w.lockDelay)
	}
	w.free = w.free || w.ended && m.now >= m.delayEnd
	w.look()
}

// look checks the rule of the package.
func (w *world) look() {
	if w.view == nil || w.fault != nil {
		return
	}
	if end := w.view.end(); w.ended && w.client < end {
		w.fault = fmt.Errorf("the cell has ended the session, and its client relies on it for another %v", end.Sub(w.client))
	}
	if freeAt := w.view.freeAt(w.lockDelay); w.free && w.client < freeAt {
		w.fault = fmt.Errorf("another handle may have the lock, and the client relies on it for another %v", freeAt.Sub(w.client))
	}
}
