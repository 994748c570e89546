package session_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// This file runs a client, a master and its successors through random
// histories: clocks that differ in rate as far as the bound allows; late, lost
// and duplicated messages; pauses; takeovers. It checks what the package
// comment proves. Then it replaces parts of the arithmetic and of the duties by
// plausible wrong ones, and must find a history that shows each of them to be
// wrong.

const theSession api.SessionID = 1

// view is what a client relies on.
type view interface {
	extend(sent, received session.Instant, g session.Grant)
	end() session.Instant
	freeAt(lockDelay time.Duration) session.Instant
}

// localView is the view that Local gives.
type localView struct{ local *session.Local }

func (v *localView) end() session.Instant                       { return v.local.End() }
func (v *localView) freeAt(delay time.Duration) session.Instant { return v.local.FreeAt(delay) }
func (v *localView) extend(sent, _ session.Instant, g session.Grant) {
	if v.local == nil {
		v.local = session.NewLocal(sent, g)
		return
	}
	v.local.Extend(sent, g)
}

// formulaView is the view that another formula gives.
type formulaView struct {
	until   session.Instant
	formula func(sent, received session.Instant, g session.Grant) session.Instant
	delay   func(time.Duration) time.Duration
}

func (v *formulaView) end() session.Instant                       { return v.until }
func (v *formulaView) freeAt(delay time.Duration) session.Instant { return v.until.Add(v.delay(delay)) }
func (v *formulaView) extend(sent, received session.Instant, g session.Grant) {
	v.until = max(v.until, v.formula(sent, received, g))
}

// live plays one history by those rules and returns the first violation.
func live(choose func(string, int64, int64) int64, r rules) (*world, error) {
	w := newWorld(choose, r)
	for range 200 {
		if w.act(); w.fault != nil {
			return w, w.fault
		}
	}
	return w, nil
}

func liveSeed(seed uint64, r rules) (*world, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	return live(func(_ string, low, high int64) int64 { return low + random.Int64N(high-low+1) }, r)
}

// TestNobodyBelievesTooLong checks the rule of the package over random
// histories.
func TestNobodyBelievesTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, err := live(func(what string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, what) }, rules{})
		if err != nil {
			t.Fatal(err)
		}
	})
	believed, freed := 0, 0
	for seed := range uint64(histories) {
		w, err := liveSeed(seed, rules{})
		if err != nil {
			t.Fatalf("history %d: %v", seed, err)
		}
		if w.view != nil && w.ended {
			believed++
		}
		if w.view != nil && w.free {
			freed++
		}
	}
	if believed < histories/10 || freed < histories/20 {
		t.Errorf("of %d histories, only %d end a session that a client relied on, and only %d free a lock: too few for a test", histories, believed, freed)
	}
}

// histories is in how many histories a wrong formula or master must be caught.
const histories = 5000

// TestWrongArithmeticIsCaught plays by rules that are each wrong in one way.
func TestWrongArithmeticIsCaught(t *testing.T) {
	shrunk := func(d time.Duration) time.Duration { return d - d/100 }
	same := func(d time.Duration) time.Duration { return d }
	by := func(delay func(time.Duration) time.Duration, formula func(sent, received session.Instant, g session.Grant) session.Instant) rules {
		return rules{newView: func() view { return &formulaView{formula: formula, delay: delay, until: -1 << 62} }}
	}
	tests := map[string]rules{
		"from the reply's arrival": by(shrunk, func(_, received session.Instant, g session.Grant) session.Instant {
			return received.Add(shrunk(g.Lease))
		}),
		"at the master's rate": by(shrunk, func(sent, _ session.Instant, g session.Grant) session.Instant {
			return sent.Add(g.Parked + g.Lease)
		}),
		"only the lease at the master's rate": by(shrunk, func(sent, _ session.Instant, g session.Grant) session.Instant {
			return sent.Add(shrunk(g.Parked) + g.Lease)
		}),
		"only the parking at the master's rate": by(shrunk, func(sent, _ session.Instant, g session.Grant) session.Instant {
			return sent.Add(g.Parked + shrunk(g.Lease))
		}),
		"the parking twice": by(shrunk, func(sent, _ session.Instant, g session.Grant) session.Instant {
			return sent.Add(shrunk(2*g.Parked + g.Lease))
		}),
		"the lock-delay at the master's rate": by(same, func(sent, _ session.Instant, g session.Grant) session.Instant {
			return sent.Add(shrunk(g.Parked + g.Lease))
		}),
		"t0 after the proof":              {proofLate: true},
		"no proof":                        {proofSkipped: true},
		"parked up to the reply":          {parkedLong: true},
		"the default lease on takeover":   {takeoverShort: true},
		"EXPIRING sessions extended":      {expiringRaised: true},
		"ended by an operator at once":    {stoppedAtOnce: true},
		"the lock-delay lost on takeover": {delayForgotten: true},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(histories) {
				if _, err := liveSeed(seed, r); err != nil {
					t.Logf("history %d: %v", seed, err)
					return
				}
			}
			t.Error("no history shows that this is wrong")
		})
	}
	right := by(shrunk, func(sent, _ session.Instant, g session.Grant) session.Instant {
		return sent.Add(shrunk(g.Parked + g.Lease))
	})
	for seed := range uint64(histories) {
		if _, err := liveSeed(seed, right); err != nil {
			t.Fatalf("history %d catches the right formula, written differently: %v", seed, err)
		}
	}
}
