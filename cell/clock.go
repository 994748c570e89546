package cell

import "time"

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

// traceClock is what spans are dated by, for people to read.
func traceClock() time.Time { return time.Now() }
