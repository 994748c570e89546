package term

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"sync"
)

// Outlet is standard output, or error, whose reader may have stopped (a pager, a
// program that hangs). Write waits for the reader until a signal has asked for the end,
// and then only for a moment: meanwhile a lock is held, or a session kept. It notes the first
// write that fails, since not everything that writes says so: cobra's help has no error.
type Outlet struct {
	w     io.Writer
	asked <-chan struct{} // closed when a signal has asked for the end

	mu     sync.Mutex // guards failed
	failed error      // of the first write that could not be done; nil if there was none
}

// NewOutlet returns an outlet to w. asked is closed when a signal has asked for the end.
func NewOutlet(w io.Writer, asked <-chan struct{}) *Outlet { return &Outlet{w: w, asked: asked} }

var errUnread = errors.New("nobody reads what is written, and a signal has asked for the end")

// Write writes to the writer behind. If it gives up, the text may still be written until
// the end of the process.
func (o *Outlet) Write(text []byte) (n int, err error) {
	written := make(chan struct{})
	own := bytes.Clone(text)
	var count int
	var failed error
	go func() { // ends with the process, at the latest
		defer close(written)
		count, failed = o.w.Write(own)
		o.note(failed)
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

// note keeps the first error of a write.
func (o *Outlet) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = cmp.Or(o.failed, err)
}

// Failure returns the error of the first write that has failed; nil if none has. A write that was given up because nobody
// reads is none.
func (o *Outlet) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// Bare returns the writer behind an outlet: a command that writes to a file itself has to
// be given the file.
func Bare(w io.Writer) io.Writer {
	if o, ok := w.(*Outlet); ok {
		return o.w
	}
	return w
}
