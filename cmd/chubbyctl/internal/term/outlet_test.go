package term

import (
	"errors"
	"io"
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
