package raftfsm_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"golang.org/x/sys/unix"
)

// threadTime returns the processor time that this thread has used.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	noErr(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// BenchmarkSnapshotPause applies entries while snapshots of a state of a million files are taken and written, and
// reports the longest times that a snapshot and an entry took: of the processor, so that other programs do not count.
func BenchmarkSnapshotPause(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, id := largeState(b, 1_000_000)
	var taking, applying time.Duration
	n := api.RequestNumber(0)
	for b.Loop() {
		began := threadTime(b)
		snapshot := s.Snapshot()
		taking = max(taking, threadTime(b)-began)
		written := make(chan error, 1)
		go func() {
			_, err := snapshot.WriteTo(io.Discard)
			written <- err
		}()
		for done := false; !done; {
			n++
			began := threadTime(b)
			writeOne(b, s, id, n, api.Name(fmt.Sprintf("/dir-%04d/file-%03d", n*7919%1_000, n%1_000)))
			applying = max(applying, threadTime(b)-began)
			select {
			case err := <-written:
				if done = true; err != nil {
					b.Fatal(err)
				}
			default:
			}
		}
	}
	b.ReportMetric(taking.Seconds()*1e3, "longest-snapshot-ms")
	b.ReportMetric(applying.Seconds()*1e3, "longest-entry-ms")
	b.ReportMetric(float64(n)/float64(b.N), "entries/op")
}
