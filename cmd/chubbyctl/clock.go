package main

import (
	"context"
	"time"
)

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

// sleep waits; false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// hasEnded reports whether an interrupt has ended a command that runs until then.
func hasEnded(ctx context.Context) bool { return ctx.Err() != nil }

// timestamp returns a time of the master's clock for -o json: null if unknown.
func timestamp(unix int64) *time.Time {
	if unix == 0 {
		return nil
	}
	at := time.Unix(unix, 0).UTC()
	return &at
}

// localTime returns a time of the master's clock for people.
func localTime(unix int64) string {
	if unix == 0 {
		return ""
	}
	return time.Unix(unix, 0).Format(time.DateTime)
}
