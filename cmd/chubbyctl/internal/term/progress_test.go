package term

import (
	"testing"
	"testing/synctest"
	"time"
)

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
