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

// An operator can leave the cell without a master at a moment of his choice, for a drill (docs/adr/0037-drills.md). It is a fail-over with a
// pause in it: the master gives up its epoch, but its replica still leads Raft, so no other replica is elected; then the replica falls silent,
// and the others elect one of them. An epoch begins once in a term. So no lease, lock-delay or cache has a rule of its own.

// outage is a time without a master that an operator has asked for.
type outage struct {
	wire.Outage
	unwanted <-chan struct{} // closed when the call that asked for it has ended
	ended    chan struct{}   // closed when this replica leads no longer
	begun    session.Instant
	unix     int64 // when that was, for display
}

// outages is what a replica knows of outages.
type outages struct {
	asked chan *outage           // the epoch that runs takes it
	now   atomic.Pointer[outage] // nil unless one goes on here
	last  atomic.Int64           // when the last one began here, in seconds since 1970
}

// silentTimeouts is for how many election timeouts a replica falls silent: the others notice after one or nearly two, and elect; a leader that
// hears nothing steps down after one.
const silentTimeouts = 3

// Vacate implements wire.Replica.
func (s served) Vacate(ctx context.Context, m *master.Master, ask wire.Outage) error {
	if _, err := s.r.successors(""); err != nil {
		return err
	}
	o := &outage{Outage: ask, unwanted: ctx.Done(), ended: make(chan struct{})}
	select {
	case s.r.outages.asked <- o:
		<-o.ended // when ctx ends, or ask.Length is over, and the election timeouts
		return nil
	case <-m.Context().Done():
		return s.r.notMaster()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginOutage notes that an outage begins, and returns why the epoch ends.
func (r *Replica) beginOutage(o *outage, epoch api.Epoch) error {
	o.begun, o.unix = r.clock(), r.cfg.Wall()
	r.outages.now.Store(o)
	r.outages.last.Store(o.unix)
	r.log.Warn("an outage begins that an operator has asked for", "event", "drill_began", "principal", o.Principal, "reason", o.Reason, "limit", o.Length, "epoch", epoch)
	return r.outageError(o)
}

// outageError is what callers are told during an outage.
func (r *Replica) outageError(o *outage) error {
	return api.Errorf(api.Unavailable, "replica %s serves nobody for now, because of a drill that an operator has asked for; it ends by itself within %v: try again",
		r.cfg.ID, max(o.Length-r.clock().Sub(o.begun), 0).Round(time.Second)+time.Second)
}

// withhold leaves the cell without a master as long as an outage lasts, and then has the other replicas elect one. ctx ends when this replica
// leads no longer. Its epoch has ended.
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
	case <-late.C: // a cell must not stay without a master because of a drill
		r.fail(fmt.Errorf("replica %s still leads after it has heard nothing of the others for %v, in an outage that an operator has asked for: it stops, so that one of them is elected", r.cfg.ID, silence))
	}
}
