package seqhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/chubbylock/chubby/sequencer/internal/carried"
)

// maxRead bounds one read of a body, in bytes, and with it the buffer of a
// request: as much as io.Copy asks for.
const maxRead = 32 << 10

// sectionBody is a request's body whose operations return when the section
// should end. Those of net/http ignore contexts: one stalled upload of a stale
// holder would lock out the next holder. The deadlines of a connection cannot
// be set behind a ResponseWriter that wraps another without Unwrap.
type sectionBody struct {
	ctx    context.Context //nolint:containedctx // it is the section's, which the body belongs to
	body   io.ReadCloser
	buffer []byte // for one read at a time; no longer used once a read was left behind
}

// outcome is the result of a read.
type outcome struct {
	n   int
	err error
}

// Read reads, or fails with the reason why the section should end.
func (b *sectionBody) Read(p []byte) (int, error) {
	p = p[:min(len(p), maxRead)]
	n, err := b.whileInside(func() (int, error) {
		if len(b.buffer) < len(p) {
			b.buffer = make([]byte, len(p))
		}
		return b.body.Read(b.buffer[:len(p)])
	})
	if n > 0 { // nothing was left behind
		copy(p, b.buffer[:n])
	}
	return n, err
}

// Close closes the body; net/http may read the rest of it.
func (b *sectionBody) Close() error {
	_, err := b.whileInside(func() (int, error) { return 0, b.body.Close() })
	return err
}

// whileInside runs one operation (carried.Inside). One that is left behind ends with the connection, or with
// its deadline if unblockReads can set one.
func (b *sectionBody) whileInside(operation func() (int, error)) (int, error) {
	o, inside := carried.Inside(b.ctx, func() outcome {
		n, err := operation()
		return outcome{n, err}
	})
	if !inside {
		return 0, b.cutOff()
	}
	return o.n, o.err
}

// cutOff returns why the body must not be read any further.
func (b *sectionBody) cutOff() error {
	return fmt.Errorf("the request's body is cut off: %w", context.Cause(b.ctx))
}

// unblockReads ends the reads that a sectionBody leaves behind, if the writer
// has deadlines: so a stale holder's connection is not kept until it sends. The
// caller must call end, which stops the watch and waits for it, because the
// connection may serve another request afterwards.
func unblockReads(ctx context.Context, w http.ResponseWriter) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // otherwise they end with the connection
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}
