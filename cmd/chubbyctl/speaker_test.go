package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuckWriter is a terminal that is stopped, or a pipe that nobody reads, until the
// test lets it go on.
type stuckWriter struct {
	buffer
	goOn chan struct{}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.goOn
	return w.buffer.Write(b)
}

// A lock is waited for, held and released whether or not somebody reads what is
// said about it. Who reads it late still finds all of it.
func TestNobodyWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{goOn: make(chan struct{})}
		s := &speaker{w: w}
		began := time.Now()
		for range 2 * mostLines {
			remark(s, "a line")
		}
		if took := time.Since(began); took > speechBound {
			t.Errorf("%d lines held up their speaker for %v", 2*mostLines, took)
		}
		if s.finish(true); time.Since(began) > speechBound+lastBound {
			t.Errorf("who has asked for the end waits for %v", time.Since(began))
		}
		remark(s, "the last")
		close(w.goOn)
		s.finish(false)
		if !strings.HasSuffix(w.String(), "the last\n") {
			t.Error("the last line did not come")
		}
		if lines := strings.Count(w.String(), "chubbyctl: a line\n"); lines < mostLines-1 || lines > mostLines {
			t.Errorf("%d lines came besides, want about %d", lines, mostLines)
		}
	})
}

// A reader that reads has a line before what follows it.
func TestLinesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w buffer
		s := &speaker{w: &w}
		for _, line := range []string{"one", "two", "three"} {
			remark(s, "%s", line)
			if !strings.HasSuffix(w.String(), line+"\n") {
				t.Errorf("after %q there is %q", line, w.String())
			}
		}
		s.finish(false)
	})
}

// The progress of one who waits for a lock ends with the wait.
func TestProgressWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{goOn: make(chan struct{})}
		defer close(w.goOn)
		s := &speaker{w: w}
		p := newProgress(func(string) string { return "always" }, func(string) { remark(s, "a line") })
		time.Sleep(2 * patience)
		began := time.Now()
		if p.stop(); time.Since(began) > speechBound {
			t.Errorf("it ended after %v", time.Since(began))
		}
	})
}
