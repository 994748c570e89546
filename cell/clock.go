package cell

import (
	"context"
	"time"

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

// elapsed is how long ago a moment was, to be shown to people.
func elapsed(since time.Time) time.Duration { return time.Since(since) }

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reminder knows what was logged last about a step that cannot be taken.
type reminder struct {
	said string
	at   session.Instant
}

// due reports whether a reason is to be logged now, and notes that it is.
func (m *reminder) due(now session.Instant, reason error) bool {
	text, pause := reason.Error(), rosterTell
	if text == m.said {
		pause = rosterRemind
	}
	if m.said != "" && now.Sub(m.at) < pause {
		return false
	}
	*m = reminder{text, now}
	return true
}

// traceClock is what spans are dated by, for people to read.
func traceClock() time.Time { return time.Now() }
