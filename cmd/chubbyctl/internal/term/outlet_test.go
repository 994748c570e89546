package term

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Write waits for the reader until a signal has asked for the end, and then only for a moment.
func TestOutletWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, w := io.Pipe()
		asked := make(chan struct{})
		o := NewOutlet(w, asked)
		go func() { _, _ = unread.Read(make([]byte, 3)) }()
		if n, err := o.Write([]byte("one")); n != 3 || err != nil {
			t.Errorf("read, it wrote %d bytes: %v", n, err)
		}
		began := time.Now()
		time.AfterFunc(time.Hour, func() { close(asked) })
		if _, err := o.Write([]byte("two")); !errors.Is(err, errUnread) || time.Since(began) != time.Hour+lastBound {
			t.Errorf("unread for an hour, and then asked to end, it gave up after %v: %v", time.Since(began), err)
		}
		unread.Close()
	})
}

// stuckWriter is a terminal that is stopped, or a pipe that nobody reads, until the test continues it.
type stuckWriter struct {
	buffer
	goOn chan struct{}
}

// buffer is a strings.Builder for several goroutines.
type buffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.goOn
	return w.buffer.Write(b)
}

// A Speaker keeps its callers for a moment at most if nobody reads. A reader that reads later finds the last lines.
func TestNobodyWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{goOn: make(chan struct{})}
		s := NewSpeaker(w)
		began := time.Now()
		for range 2 * maxLines {
			Remark(s, "a line")
		}
		if took := time.Since(began); took > speechBound {
			t.Errorf("%d lines held up their speaker for %v", 2*maxLines, took)
		}
		if s.Finish(true); time.Since(began) > speechBound+lastBound {
			t.Errorf("who has asked for the end waits for %v", time.Since(began))
		}
		Remark(s, "the last")
		close(w.goOn)
		s.Finish(false)
		if !strings.HasSuffix(w.String(), "the last\n") {
			t.Error("the last line did not come")
		}
		if lines := strings.Count(w.String(), "chubbyctl: a line\n"); lines < maxLines-1 || lines > maxLines {
			t.Errorf("%d lines came besides, want about %d", lines, maxLines)
		}
	})
}

// If the reader reads, Write returns when its line is written.
func TestLinesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w buffer
		s := NewSpeaker(&w)
		for _, line := range []string{"one", "two", "three"} {
			Remark(s, "%s", line)
			if !strings.HasSuffix(w.String(), line+"\n") {
				t.Errorf("after %q there is %q", line, w.String())
			}
		}
		s.Finish(false)
	})
}

// Stop does not wait for a reader that has stopped.
func TestProgressWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{goOn: make(chan struct{})}
		defer close(w.goOn)
		s := NewSpeaker(w)
		p := NewProgress(func(string) string { return "always" }, func(string) { Remark(s, "a line") })
		time.Sleep(2 * Patience)
		began := time.Now()
		if p.Stop(); time.Since(began) > speechBound {
			t.Errorf("it ended after %v", time.Since(began))
		}
	})
}
