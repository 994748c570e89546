package chubbycron_test

import (
	"os"
	"testing"
)

// TestMain has the cells keep their data in memory where the system has a place for that: the tests kill processes, and no
// machine loses power.
func TestMain(m *testing.M) {
	const inMemory = "/dev/shm"
	if info, err := os.Stat(inMemory); err == nil && info.IsDir() {
		os.Setenv("TMPDIR", inMemory)
	}
	os.Exit(m.Run())
}
