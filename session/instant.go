package session

import (
	"math"
	"time"
)

// Instant is a reading of one process's clock: nanoseconds since some origin of
// that process, counted also in suspend. It is unrelated to the time of day,
// and never leaves its process.
type Instant int64

// The ends of an Instant's range. Sums and differences stop there instead of
// wrapping round: an absurd duration must not turn a late end into an early
// one, or the reverse.
const (
	latest   Instant = math.MaxInt64
	earliest Instant = math.MinInt64
)

// Clock reads the time.
type Clock func() Instant

// Add returns the instant d later, at most the ends of the range of an Instant.
func (i Instant) Add(d time.Duration) Instant { //mutants: same (equal instants, and a duration of 0, are the same either way)
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return latest
	case d < 0 && sum > i:
		return earliest
	}
	return sum
}

// Sub returns the time from other to i, or the longest duration of that sign if
// the time is longer.
func (i Instant) Sub(other Instant) time.Duration { //mutants: same (equal instants are the same either way)
	difference := i - other
	switch {
	case i > other && difference < 0:
		return math.MaxInt64
	case i < other && difference > 0:
		return math.MinInt64
	}
	return time.Duration(difference)
}
