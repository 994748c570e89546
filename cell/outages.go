package cell

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
)

// For a drill, an operator can leave the cell without a master (docs/adr/0037-drills.md). This is a fail-over
// with a pause: the master ends its epoch, but still leads Raft, so that no other is elected. Then it falls
// silent, and the others elect a master. An epoch begins once a term, so leases, lock-delays and caches need no
// rules of their own.

// outage is a time without a master that an operator requested.
type outage struct {
	wire.Outage
	unwanted <-chan struct{} // closed when the call that requested it has ended
	ended    chan struct{}   // closed when this replica no longer leads
	begun    session.Instant
	unix     int64 // when that was, for display
}

type outages struct {
	asked chan *outage           // the running epoch takes it
	now   atomic.Pointer[outage] // nil unless one is in progress here
	last  atomic.Int64           // when the last one began here, in seconds since 1970
}

// silentTimeouts is how many election timeouts a replica stays silent. The others elect after one or nearly
// two; a leader that hears nothing steps down after one.
const silentTimeouts = 3

func (s served) Vacate(ctx context.Context, m *master.Master, ask wire.Outage) error {
	if _, err := s.r.successors(""); err != nil {
		return err
	}
	o := &outage{Outage: ask, unwanted: ctx.Done(), ended: make(chan struct{})}
	select {
	case s.r.outages.asked <- o:
		<-o.ended // when ctx or ask.Length has ended, and the election timeouts
		return nil
	case <-m.Context().Done():
		return s.r.notMaster()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginOutage records that an outage begins, and returns why the epoch ends.
func (r *Replica) beginOutage(o *outage, epoch api.Epoch) error {
	o.begun, o.unix = r.clock(), r.cfg.Wall()
	r.outages.now.Store(o)
	r.outages.last.Store(o.unix)
	r.log.Warn("an outage begins that an operator has asked for", "event", "drill_began", "principal", o.Principal, "reason", o.Reason, "limit", o.Length, "epoch", epoch)
	return r.outageError(o)
}

func (r *Replica) outageError(o *outage) error {
	return api.Errorf(api.Unavailable, "replica %s serves nobody for now, because of a drill that an operator has asked for; it ends by itself within %v: try again",
		r.cfg.ID, max(o.Length-r.clock().Sub(o.begun), 0).Round(time.Second)+time.Second)
}

// withhold keeps the cell without a master for the outage, then lets the others elect one. The epoch has ended;
// ctx ends when this replica no longer leads.
func (r *Replica) withhold(ctx context.Context, o *outage) {
	defer close(o.ended)
	defer func() {
		r.outages.now.Store(nil)
		r.log.Warn("the outage has ended", "event", "drill_ended", "principal", o.Principal, "took", r.clock().Sub(o.begun))
	}()
	length := time.NewTimer(o.Length)
	defer length.Stop()
	select {
	case <-length.C:
	case <-o.unwanted:
	case <-ctx.Done():
		return
	}
	silence := silentTimeouts * r.cfg.ElectionTimeout
	r.transport.Hush(silence)
	late := time.NewTimer(silence)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C: // a drill must not leave a cell without a master
		r.fail(fmt.Errorf("replica %s still leads after it has heard nothing of the others for %v, in an outage that an operator has asked for: it stops, so that one of them is elected", r.cfg.ID, silence))
	}
}
