package main

import "time"

// since is how long ago a moment of the master's time of day was, by ours. It
// is for people to read: nothing is decided by it.
func since(unix int64) time.Duration {
	if unix == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(unix, 0)).Truncate(time.Second))
}

// now is the time of day at which a line is printed, for people to read:
// nothing is decided by it.
func now() time.Time { return time.Now() }

// stopwatch returns a function that says how long ago stopwatch was called, for
// bench to measure with: nothing is decided by it but when a bench is over.
func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
