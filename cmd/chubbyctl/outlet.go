package main

import (
	"bytes"
	"errors"
	"io"
)

// outlet is standard output, or error, whose reader may have stopped (a pager, a
// program that hangs). Once a signal has asked for the end, nobody waits for the
// reader for long: a lock would be held, or a session kept, until somebody reads.
type outlet struct {
	w     io.Writer
	asked <-chan struct{} // closed when a signal has asked for the end
}

var errUnread = errors.New("nobody reads what is written, and a signal has asked for the end")

// Write writes as the writer behind does. What it gives up may yet be written until
// the end of the process.
func (o *outlet) Write(text []byte) (n int, err error) {
	written := make(chan struct{})
	own := bytes.Clone(text)
	var count int
	var failed error
	go func() { // ends with the process, at the latest
		defer close(written)
		count, failed = o.w.Write(own)
	}()
	select {
	case <-written:
		return count, failed
	case <-o.asked:
	}
	if !within(written, lastBound) {
		return 0, errUnread
	}
	return count, failed
}

// bare is the file behind, for a program that is to write to it itself.
func bare(w io.Writer) io.Writer {
	if o, ok := w.(*outlet); ok {
		return o.w
	}
	return w
}
