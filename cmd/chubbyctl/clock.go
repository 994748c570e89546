package main

import "time"

// since returns how long ago a moment was. The master's clock has set the moment, and this
// machine's is compared with it, so the result is for people to read, and decides nothing.
func since(unix int64) time.Duration {
	if unix == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(unix, 0)).Truncate(time.Second))
}

// now is the time of day at which a line is printed. It is for people to read, and decides
// nothing.
func now() time.Time { return time.Now() }

// stopwatch returns a function that returns how long ago stopwatch was called. bench measures
// with it, and --wait and --at-least are counted by it; no lease is.
func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
