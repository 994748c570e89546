package main

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A process whose last message nobody reads ends all the same.
func TestComplaintThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, out := io.Pipe()
		defer unread.Close()
		began := time.Now()
		complain(out, errors.New("it failed"))
		if took := time.Since(began); took != complaintLimit {
			t.Errorf("it gave up after %v, want %v", took, complaintLimit)
		}
	})
}
