package frames

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrParked is what a handler returns whose call was parked: see Park.
var ErrParked = errors.New("the call is parked")

// Park lets the handler of a call return before its last reply is known, so that a call
// that waits for long needs no goroutine. ctx is the handler's, or was made of it; the handler
// then returns ErrParked. Once it has, and resume was called, rest is run, and the call is
// answered with what that returns; of a call with several replies, that is the last one, and
// rest may send others before. Or rest parks the call again, as the handler has. resume is
// called in any case, also when ctx has ended. It may be called from anywhere, more often than
// once, and never blocks.
//
// Park returns nil if the call has come over another protocol. Its handler has to wait.
func Park(ctx context.Context, rest func() (reply any, err error)) (resume func()) {
	k, _ := ctx.Value(callKey{}).(*serverCall)
	if k == nil {
		return nil
	}
	k.parking = &parking{call: k, rest: rest}
	k.parking.missing.Store(2)
	return k.parking.resume
}

// parking is a call that is parked, or about to be.
type parking struct {
	call    *serverCall
	rest    func() (any, error)
	resumed atomic.Bool
	missing atomic.Int32 // of two: that the handler has returned, and that resume was called
}

func (p *parking) resume() {
	if p.resumed.CompareAndSwap(false, true) {
		p.advance()
	}
}

// advance says that one of both has happened.
func (p *parking) advance() {
	if p.missing.Add(-1) == 0 {
		p.call.conn.server.workers.run(func() { p.call.returned(p.rest()) })
	}
}
