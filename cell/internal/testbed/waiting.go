package testbed

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/session"
)

// Clock reads the bubble's clock, or outside of one the real one.
func Clock() session.Clock {
	start := time.Now()
	return func() session.Instant { return session.Instant(time.Since(start)) }
}

// Pass lets time pass, virtual time in a bubble.
func Pass(d time.Duration) { <-time.After(d) }

// Await polls until ok, and fails the test after a minute, of virtual time in a bubble.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		Pass(10 * time.Millisecond)
	}
	t.Fatalf("a minute has passed without: %s", what)
}
