package main

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A process ends although nobody reads its last message.
func TestComplaintThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, out := io.Pipe()
		defer unread.Close()
		began := time.Now()
		printLast(out, errors.New("it failed"))
		if took := time.Since(began); took != lastBound {
			t.Errorf("it gave up after %v, want %v", took, lastBound)
		}
	})
}
