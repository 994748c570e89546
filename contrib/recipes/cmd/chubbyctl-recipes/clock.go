package main

import "time"

// since returns how long ago a moment of the master's clock was. It is for people to read, and decides nothing.
func since(unix int64) time.Duration {
	if unix == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(unix, 0)).Truncate(time.Second))
}

// stopwatch returns a function that returns how long ago stopwatch was called. --wait is counted by it; no lease is.
func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
