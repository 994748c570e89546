package main

import "time"

// since returns how long ago a moment of the master's clock was, by this machine's clock. It is for people, and
// decides nothing.
func since(unix int64) time.Duration {
	if unix == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(unix, 0)).Truncate(time.Second))
}

// now returns the time to print on a line. It is for people, and decides nothing.
func now() time.Time { return time.Now() }

// stopwatch returns a function that returns the time since this call. It serves bench, --wait and --at-least;
// no lease depends on it.
func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
