package master

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// maxHoldTimes bounds the locks of which holdTimes knows something.
const maxHoldTimes = 4096

// holdTimes knows how long a turn with a lock has taken of late, so that those who
// wait can be told how long they may have to. A turn begins when somebody gets a
// lock that was free, or is handed over, and ends when nobody has it; readers who
// hold it together take one turn. It knows the locks that were granted last, from
// the beginning of the epoch on. Nothing depends on it but what people read.
// epoch.mu guards it.
type holdTimes struct {
	byName *simplelru.LRU[api.Name, holdTime]
	over   func(name api.Name, took time.Duration) // is told of each turn that has ended with one of these locks, to count
	unread *unreadSequencers
}

type holdTime struct {
	turn
	began session.Instant // when that began
	usual time.Duration   // how long one takes: a mean in which the latest counts for a quarter; 0 if none is over
}

// turn is one that goes on.
type turn struct {
	generation api.Generation // 0 if none does
	cached     bool           // a holder may keep the lock unused: how long it takes says nothing
	delays     bool           // nobody gets the lock for a while if the holder fails: nothing else has to refuse it
	by         *usage         // of the session that has the lock alone; nil if that is not counted
}

func newHoldTimes(over func(api.Name, time.Duration), unread *unreadSequencers) *holdTimes {
	byName, err := simplelru.NewLRU[api.Name, holdTime](maxHoldTimes, nil)
	if err != nil {
		panic(err) // a size below 1
	}
	return &holdTimes{byName: byName, over: over, unread: unread}
}

// beginHold notes a grant. One of the same generation is of the turn that goes on.
func (t *holdTimes) beginHold(name api.Name, next turn, now session.Instant) {
	one, _ := t.byName.Get(name)
	if one.generation == next.generation {
		if next.cached && !one.cached || one.by != nil {
			one.cached, one.by = one.cached || next.cached, nil
			t.byName.Add(name, one)
		}
		return
	}
	one = t.ended(name, one, now)
	one.turn, one.began = next, now
	t.byName.Add(name, one)
}

// heldSince returns when the turn of that grant began, if it goes on and that is known.
func (t *holdTimes) heldSince(name api.Name, g api.Generation) (began session.Instant, known bool) {
	one, _ := t.byName.Peek(name)
	return one.began, g != 0 && one.generation == g
}

// endHold notes that nobody has the lock.
func (t *holdTimes) endHold(name api.Name, now session.Instant) {
	if one, ok := t.byName.Get(name); ok {
		t.byName.Add(name, t.ended(name, one, now))
	}
}

// ended is what is known when the turn that goes on, if one does, has ended.
func (t *holdTimes) ended(name api.Name, one holdTime, now session.Instant) holdTime {
	if one.generation == 0 || one.cached {
		one.turn = turn{}
		return one
	}
	took := max(now.Sub(one.began), 1)
	t.over(name, took)
	//mutant: one.by.held(name, took, t.unread.has(one.generation))
	one.by.held(name, took, !one.delays && t.unread.has(one.generation))
	if one.usual == 0 {
		one.usual = took
	}
	one.usual += (took - one.usual) / 4
	one.turn = turn{}
	return one
}

// estimateWait says how long it may be until ahead more turns, and the one that goes
// on if the lock is held, are over; 0 if that cannot be told: if none has been
// seen to its end, or the one that goes on takes longer than usual, or one of its
// holders caches the lock.
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
