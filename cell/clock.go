package cell

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/session"
)

// wallClock returns seconds since 1970, for people. It goes into "since" columns and is never compared.
func wallClock() int64 { return time.Now().Unix() }

// stopwatch returns a cheap clock that only measures durations.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// elapsed returns how long ago a moment was, for display.
func elapsed(since time.Time) time.Duration { return time.Since(since) }

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ticks is a loop that goes round once in each interval, until ctx ends.
func ticks(ctx context.Context, every time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !yield() {
				return
			}
		}
	}
}

// Times between two log lines about a blocked step.
const (
	tellAgain   = 5 * time.Second  // for another reason
	remindAgain = 10 * time.Minute // for the same
)

// reminder remembers the last log line about a step that is blocked.
type reminder struct {
	said string
	at   session.Instant
}

// due reports whether to log a reason now, and records that.
func (m *reminder) due(now session.Instant, reason error) bool {
	text, pause := reason.Error(), tellAgain
	if text == m.said {
		pause = remindAgain
	}
	if m.said != "" && now.Sub(m.at) < pause {
		return false
	}
	*m = reminder{text, now}
	return true
}

// traceClock dates spans, for people.
func traceClock() time.Time { return time.Now() }
