package master

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// maxHoldTimes bounds the locks in holdTimes.
const maxHoldTimes = 4096

// holdTimes measures recent turns with locks, to estimate waits for people. A turn begins when a free lock is
// granted, or is handed over, and ends when it has no holder; readers together take one turn. It covers the
// locks granted last in this epoch. epoch.mu guards it.
type holdTimes struct {
	byName *simplelru.LRU[api.Name, holdTime]
	over   func(name api.Name, took time.Duration) // counts each ended turn with one of these locks
}

// holdTime is what is known of a lock. All but usual is of the current turn.
type holdTime struct {
	generation api.Generation // 0 between turns
	cached     bool           // a holder may keep the lock unused, so the turn's length means nothing
	delays     bool           // a lock-delay follows if the holder fails, so no other check of the sequencer is needed
	began      session.Instant
	usual      time.Duration // mean of turns, in which the latest counts for a quarter; 0 if none has ended
}

func newHoldTimes(over func(api.Name, time.Duration)) *holdTimes {
	byName, err := simplelru.NewLRU[api.Name, holdTime](maxHoldTimes, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &holdTimes{byName: byName, over: over}
}

// beginHold records a grant. One of the same generation belongs to the current turn.
func (t *holdTimes) beginHold(name api.Name, next holdTime, now session.Instant) {
	one, _ := t.byName.Get(name)
	if one.generation == next.generation {
		if next.cached && !one.cached {
			one.cached = true
			t.byName.Add(name, one)
		}
		return
	}
	next.began, next.usual = now, t.ended(name, one, now).usual
	t.byName.Add(name, next)
}

// current returns the turn of a grant, if it has not ended.
func (t *holdTimes) current(name api.Name, g api.Generation) (one holdTime, known bool) {
	one, _ = t.byName.Peek(name)
	return one, g != 0 && one.generation == g
}

// endHold records that the lock has no holder.
func (t *holdTimes) endHold(name api.Name, now session.Instant) {
	if one, ok := t.byName.Get(name); ok {
		t.byName.Add(name, t.ended(name, one, now))
	}
}

// ended returns a record after the end of its turn, if it had one.
func (t *holdTimes) ended(name api.Name, one holdTime, now session.Instant) holdTime {
	if one.generation == 0 || one.cached {
		return holdTime{usual: one.usual}
	}
	took := max(now.Sub(one.began), 1)
	t.over(name, took)
	if one.usual == 0 {
		one.usual = took
	}
	return holdTime{usual: one.usual + (took-one.usual)/4}
}

// estimateWait estimates when the current turn, if held, and ahead more will have ended. It returns 0 if it
// cannot: no turn has ended yet, the current one takes longer than usual, or a holder caches the lock.
func (t *holdTimes) estimateWait(name api.Name, held bool, ahead int, now session.Instant) time.Duration {
	one, _ := t.byName.Peek(name)
	if one.usual == 0 || held && (one.generation == 0 || one.cached) {
		return 0
	}
	wait := time.Duration(ahead) * one.usual
	if held {
		left := one.usual - now.Sub(one.began)
		if left <= 0 {
			return 0
		}
		wait += left
	}
	return wait
}
