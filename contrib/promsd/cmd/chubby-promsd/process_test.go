package main

import (
	"os"
	"testing"
	"time"
)

// programTask makes the test's binary the program, with these arguments: what is killed and stopped must
// be a process.
const programTask = "CHUBBY_PROMSD_TEST_CONFIG"

func TestMain(m *testing.M) {
	if config := os.Getenv(programTask); config != "" {
		os.Args = []string{"chubby-promsd", "-config", config}
		main()
	}
	os.Exit(m.Run())
}

// within waits until something is so.
func within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	defer func(began time.Time) { t.Logf("%s: %v", what, time.Since(began)) }(time.Now())
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
