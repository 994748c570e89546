package tenure

import (
	"bytes"
	"io"
	"testing"
	"time"
)

// What CMD does not read does not keep chubbyctl, and what it reads is whole.
func TestFeed(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 1<<20) // more than a pipe holds
	unread, err := startFeed(data)
	if err != nil {
		t.Fatal(err)
	}
	unread.passOn()
	ended := make(chan struct{})
	go func() {
		unread.wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for a reader that there is not")
	}
	read, err := startFeed(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(read.out)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	read.passOn()
	read.wait()
}
