//go:build linux

package recipes

import (
	"testing"
	"testing/synctest"
	"time"
)

// The timer that was set before, and ends in the moment in which another is set, does not pass for that: it would
// end a delay that has just begun.
func TestQueueTimerThatWasSetAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		early := 0
		for range 3_000 {
			k, one := &taking{news: make(chan struct{}, 1)}, &busyItem{stop: func() {}}
			k.after(one, time.Second)
			time.Sleep(time.Second)
			k.after(one, time.Hour)
			synctest.Wait()
			if one.hasRung() {
				early++
			}
			one.end()
		}
		if early > 0 {
			t.Errorf("a timer of an hour has rung at once %d times", early)
		}
	})
}
