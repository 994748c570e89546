package session

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Grant is the part of a master's reply about a lease.
type Grant struct {
	Epoch  api.Epoch
	Number uint64        // counts up within the epoch
	Lease  time.Duration // the length of the promise
	Parked time.Duration // from the receipt of the request to the start of the proof, where the promise begins
}

// State is how far a client may rely on its session.
type State uint8

// The states of a session as its client sees it (Chubby §2.8).
const (
	Safe     State = 1 // the lease runs
	Jeopardy State = 2 // it ran out by the local clock; the cell may have ended the session
	Gone     State = 3 // the grace period ran out too
)

// String names the state in lower case.
func (s State) String() string {
	switch s {
	case Safe:
		return "safe"
	case Jeopardy:
		return "jeopardy"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// Local is a client's conservative view of its lease (Chubby §2.8). It is for
// one goroutine at a time.
type Local struct {
	epoch  api.Epoch     // of the newest grant
	number uint64        // of the newest grant
	lease  time.Duration // of the newest grant
	end    Instant       // the latest end that any grant guarantees
}

// NewLocal returns the view of a new session. sent is when the client sent the
// request that g answers, read before that request left, even if it was not the
// first attempt. A grant outside its limits leaves the session in jeopardy from
// the start.
func NewLocal(sent Instant, g Grant) *Local {
	l := &Local{end: sent}
	if g.inLimits() {
		l.accept(sent, g)
	}
	return l
}

// Extend takes the grant of a reply; sent is read before the request leaves. It
// reports whether the grant counts. It drops a grant of an earlier epoch, or of
// this epoch with a number not above the newest: that grant says nothing about
// the present master. It also drops one whose lease is not positive, or whose
// Parked is negative. The end never moves back.
//
// Local does not remember that the session was Gone: a client that gave up its
// session must not call Extend again.
func (l *Local) Extend(sent Instant, g Grant) bool {
	older := g.Epoch < l.epoch || g.Epoch == l.epoch && g.Number <= l.number
	if older || !g.inLimits() {
		return false
	}
	l.accept(sent, g)
	return true
}

func (l *Local) accept(sent Instant, g Grant) {
	l.epoch, l.number = g.Epoch, g.Number
	l.lease = min(g.Lease, api.MaxLease)
	l.end = max(l.end, g.end(sent))
}

// Epoch returns the epoch of the newest grant.
func (l *Local) Epoch() api.Epoch { return l.epoch }

// Number returns the number of the newest grant within its epoch.
func (l *Local) Number() uint64 { return l.number }

// Lease returns the length of the newest grant, at most api.MaxLease; 0 if
// there was none.
func (l *Local) Lease() time.Duration { return l.lease }

// End returns until when the client may rely on its session: while its clock
// reads less than End.
func (l *Local) End() Instant { return l.end }

// FreeAt returns the first moment at which another handle could hold a lock
// that this session holds with that lock-delay, if the session is never
// extended again. A negative delay counts as 0, one above api.MaxLockDelay as
// api.MaxLockDelay.
//
// FreeAt is computed from End, so it never moves back. It rounds the two parts
// down separately, which may make it one nanosecond earlier than the rounded
// sum. That is the safe side.
func (l *Local) FreeAt(lockDelay time.Duration) Instant {
	return l.end.Add(atLeast(min(max(lockDelay, 0), api.MaxLockDelay)))
}

// State returns how far the client may rely on its session at now. grace is a
// length of the client's own clock, so it needs no clock rate bound.
func (l *Local) State(now Instant, grace time.Duration) State {
	switch {
	case now < l.end:
		return Safe
	case now < l.end.Add(grace):
		return Jeopardy
	}
	return Gone
}

// inLimits reports whether the grant promises anything. A correct master sends
// no negative length, so the client ignores the whole of such a grant.
func (g Grant) inLimits() bool { return g.Lease > 0 && g.Parked >= 0 }

// end returns the end of the lease that a request sent at that instant is sure
// to have; see the package comment. It cuts both lengths to api.MaxLease, the
// longest that a correct master sends, which can only make the end earlier.
func (g Grant) end(sent Instant) Instant {
	//mutant: sent = sent.Add(g.Parked); return sent.Add(atLeast(min(g.Parked, api.MaxLease) + min(g.Lease, api.MaxLease)))
	return sent.Add(atLeast(min(g.Parked, api.MaxLease) + min(g.Lease, api.MaxLease)))
}

// ratePPM is the clock rate bound in millionths. A bound that is not a whole
// number of millionths does not compile.
const ratePPM = api.ClockRateBound * 1e6

// atLeast returns the least time that passes on any clock while d passes on
// another: d (1 - rho), rounded down to the nanosecond. d must not be negative.
func atLeast(d time.Duration) time.Duration {
	const million = 1_000_000
	whole, rest := d/million, d%million
	return d - whole*ratePPM - (rest*ratePPM+million-1)/million
}

// Due returns how long the master parks a KeepAlive: 7/12 of the lease, as in
// Chubby §2.8 and §5 (12 s and 7 s).
func Due(lease time.Duration) time.Duration { return lease * 7 / 12 }
