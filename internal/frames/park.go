package frames

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrParked is the result of a handler that parked its call: see Park.
var ErrParked = errors.New("the call is parked")

// Park lets a call's handler return before its last reply is known, so that a long wait needs no goroutine. ctx
// is the handler's, or derived from it; the handler then returns ErrParked. After that and resume, rest runs,
// and its result answers the call, as the last of several replies; rest may send others before, or park the
// call again. The caller has to call resume in any case, also when ctx has ended. resume may be called from
// anywhere, repeatedly, and never blocks.
//
// Park returns nil for a call over another protocol. Its handler has to wait.
func Park(ctx context.Context, rest func() (reply any, err error)) (resume func()) {
	k, _ := ctx.Value(callKey{}).(*serverCall)
	if k == nil {
		return nil
	}
	k.parking = &parking{call: k, rest: rest}
	k.parking.missing.Store(2)
	return k.parking.resume
}

type parking struct {
	call    *serverCall
	rest    func() (any, error)
	resumed atomic.Bool
	missing atomic.Int32 // of two: the handler's return, and resume
}

func (p *parking) resume() {
	if p.resumed.CompareAndSwap(false, true) {
		p.advance()
	}
}

// advance counts one of the two.
func (p *parking) advance() {
	if p.missing.Add(-1) == 0 {
		p.call.conn.server.workers.run(func() { p.call.returned(p.rest()) })
	}
}
