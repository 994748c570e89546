package master

import (
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// at returns the instant that is d after the beginning.
func at(d time.Duration) session.Instant { return session.Instant(0).Add(d) }

func TestEstimate(t *testing.T) {
	const held, free = true, false
	u := newHoldTimes(func(api.Name, time.Duration) {})
	asked := func(now time.Duration, held bool, ahead int, want time.Duration) {
		t.Helper()
		if got := u.estimateWait("/x", held, ahead, at(now)); got != want {
			t.Errorf("at %v with %d before: %v, want %v", now, ahead, got, want)
		}
	}
	asked(0, held, 0, 0) // granted before this epoch
	u.beginHold("/x", holdTime{generation: 1}, at(0))
	asked(10*time.Second, held, 0, 0) // the first turn
	u.endHold("/x", at(time.Minute))
	u.endHold("/x", at(9*time.Minute)) // it had ended
	asked(9*time.Minute, free, 2, 2*time.Minute)

	u.beginHold("/x", holdTime{generation: 2}, at(10*time.Minute))
	u.beginHold("/x", holdTime{generation: 2}, at(10*time.Minute+30*time.Second)) // another reader, in the same turn
	asked(10*time.Minute+20*time.Second, held, 0, 40*time.Second)
	asked(10*time.Minute+20*time.Second, held, 3, 3*time.Minute+40*time.Second)
	asked(11*time.Minute, held, 3, 0) // longer than usual

	u.beginHold("/x", holdTime{generation: 3}, at(15*time.Minute)) // handed over after 5 minutes: 1m + (5m-1m)/4
	asked(15*time.Minute, held, 1, 4*time.Minute)

	u.beginHold("/x", holdTime{generation: 4, cached: true}, at(16*time.Minute)) // may be kept unused
	asked(16*time.Minute, held, 1, 0)
	u.endHold("/x", at(2*time.Hour)) // it does not count
	asked(2*time.Hour, free, 1, 105*time.Second)
	u.beginHold("/x", holdTime{generation: 5}, at(3*time.Hour))
	u.beginHold("/x", holdTime{generation: 5, cached: true}, at(3*time.Hour)) // of two readers one may keep it unused
	asked(3*time.Hour, held, 1, 0)
	u.endHold("/x", at(5*time.Hour))
	asked(5*time.Hour, free, 1, 105*time.Second)
	equal(t, u.estimateWait("/y", free, 1, at(0)), 0, "of a lock that was never held: %v")
}

// The number of known locks is bounded: those granted longest ago are removed first.
func TestTurnsAreBounded(t *testing.T) {
	u := newHoldTimes(func(api.Name, time.Duration) {})
	for i := range maxHoldTimes + 1 {
		name := api.Name(fmt.Sprint("/", i))
		u.beginHold(name, holdTime{generation: 1}, at(0))
		u.endHold(name, at(time.Second))
	}
	equal(t, u.byName.Len(), maxHoldTimes, "%d locks are known")
	if u.estimateWait("/0", false, 1, at(0)) != 0 || u.estimateWait("/1", false, 1, at(0)) == 0 {
		t.Error("the removed lock was not the oldest")
	}
}
