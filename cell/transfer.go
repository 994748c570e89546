package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// handOvers passes the mastership on: this replica's to another, and that of a master whose process has died.
//
// It does not use Raft's own LeadershipTransfer. That rejects every change until two of its calls have
// returned. A target that is down or stops can delay them, even into this replica's next term (hashicorp/raft
// issue 696). Instead the proposer pauses, and the target is asked to stand for election, as by Raft. If it
// does not win, the proposer resumes.
type handOvers struct {
	*mastership
	handing chan struct{} // full during a hand-over
	lost    chan string   // replicas that closed a stream of their Raft messages; see replaceDead
}

// begin does the work of Replica.Transfer.
func (h *handOvers) begin(ctx context.Context, to string) error {
	select {
	case h.handing <- struct{}{}:
		return h.transfer(ctx, to)
	default:
		return api.Errorf(api.Unavailable, "the mastership is being handed over already; see chubbyctl cell status, and try again")
	}
}

// transfer hands over for a caller that has filled handing, and empties it at the end.
func (h *handOvers) transfer(ctx context.Context, to string) error {
	done := func() { <-h.handing }
	m := h.master.Load()
	if m == nil || to == h.cfg.ID { // nothing to do
		defer done()
		if m == nil {
			return h.notMaster()
		}
		return nil
	}
	successors, err := h.successors(to)
	if err != nil {
		defer done()
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.Context(), func() { cancel(errDeposed) })()
	target, err := h.awaitCaughtUp(ctx, uint64(m.Epoch()), successors, transferProbeLimit)
	if err != nil {
		defer done()
		return h.transferred(m, err)
	}
	resume, err := m.Pause(ctx)
	if err != nil {
		defer done()
		return h.transferred(m, err)
	}
	defer resume()
	// The entries just proposed have to reach the target, or it would lose.
	if target, err = h.awaitCaughtUp(ctx, uint64(m.Epoch()), []raft.Server{target}, h.cfg.ElectionTimeout); err != nil {
		defer done()
		return h.transferred(m, err)
	}
	asked := make(chan error, 1)
	go func() { // ends when the target has answered, or the transport is closed; release waits for it
		defer done()
		asked <- h.askToStand(target)
	}()
	return h.transferred(m, h.awaitDeposed(ctx, target, asked))
}

// errDeposed ends the wait of a hand-over: another replica leads.
var errDeposed = errors.New("this replica is not the master any more")

// transferred returns the result of a hand-over that ended with err: nil if this replica is no longer the
// master.
func (h *handOvers) transferred(m *master.Master, err error) error {
	select {
	case <-m.Context().Done():
		return nil
	default:
	}
	if errors.Is(err, errDeposed) {
		return nil
	}
	var e *api.Error
	if !errors.As(err, &e) {
		return &api.Error{Code: api.Unavailable, Message: "the mastership was not handed over", Err: err}
	}
	return err
}

// transferProbeLimit is how long a hand-over waits for a successor. A running replica answers within
// milliseconds.
const transferProbeLimit = time.Second

// transferProbePause is the interval of questions to one replica.
const transferProbePause = 5 * time.Millisecond

// successors returns the voters that may take over: the one with that id, or all others.
func (h *handOvers) successors(to string) ([]raft.Server, error) {
	var found []raft.Server
	for _, s := range h.others() {
		if s.Suffrage == raft.Voter && (to == "" || string(s.ID) == to) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case to == "":
		return nil, api.Errorf(api.InvalidArgument, "the cell has no other replica to hand over to")
	}
	return nil, api.Errorf(api.InvalidArgument, "%q is no replica of the cell; see chubbyctl cell members", to)
}

// awaitCaughtUp returns the first replica that answers in this term with a log as long as this replica's at the
// call.
func (h *handOvers) awaitCaughtUp(ctx context.Context, term uint64, replicas []raft.Server, limit time.Duration) (raft.Server, error) {
	type answer struct {
		from raft.Server
		last uint64
	}
	want, best := h.raft.LastIndex(), answer{}
	answers := make(chan answer, len(replicas))
	again := time.NewTicker(transferProbePause)
	defer again.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	ask := func() {
		for _, s := range replicas {
			h.prober.Ask(string(s.ID), string(s.Address), func(report peer.Report) {
				if report.Term != term {
					return
				}
				select {
				case answers <- answer{from: s, last: report.Last}:
				default: // it is asked again
				}
			})
		}
	}
	ask()
	for {
		select {
		case a := <-answers:
			if a.last >= want {
				return a.from, nil
			}
			if a.last > best.last {
				best = a
			}
		case <-again.C: // not at each answer: a replica that lacks entries would be asked as fast as it answers
			ask()
		case <-ctx.Done():
			return raft.Server{}, context.Cause(ctx)
		case <-late.C:
			return raft.Server{}, notCaughtUp(replicas, string(best.from.ID), want-best.last, limit)
		}
	}
}

// notCaughtUp returns why no replica can take over. best is the one that answered and lacks the fewest entries,
// or "".
func notCaughtUp(replicas []raft.Server, best string, lacks uint64, limit time.Duration) error {
	who := "no other replica"
	if len(replicas) == 1 {
		who = "replica " + string(replicas[0].ID)
	}
	if best == "" {
		return api.Errorf(api.Unavailable, "the mastership was not handed over: %s answers within %v; start it, or choose another (chubbyctl cell status)", who, limit)
	}
	return api.Errorf(api.Unavailable, "the mastership was not handed over: replica %s still lacks %d entries of the log after %v; wait until it has caught up, or choose another (chubbyctl cell status)", best, lacks, limit)
}

// askToStand asks a replica to stand for election at once. Voters then vote despite their leader.
func (h *handOvers) askToStand(target raft.Server) error {
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(h.cfg.ID), Addr: h.transport.EncodePeer(raft.ServerID(h.cfg.ID), h.transport.LocalAddr()),
	}}
	var err error
	for range peer.MaxIdleStreams + 1 { // idle streams may be of an earlier process of the target
		if err = h.transport.TimeoutNow(target.ID, target.Address, request, &raft.TimeoutNowResponse{}); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return err
}

// awaitDeposed waits, as long as an election may take, until the target is elected.
func (h *handOvers) awaitDeposed(ctx context.Context, target raft.Server, asked <-chan error) error {
	late := time.NewTimer(h.cfg.ElectionTimeout)
	defer late.Stop()
	var cause error
	for {
		select {
		case err := <-asked:
			if err == nil {
				asked = nil // it was accepted
				continue
			}
			cause = err
		case <-ctx.Done():
			if cause = context.Cause(ctx); errors.Is(cause, errDeposed) {
				return nil
			}
		case <-late.C:
		}
		return &api.Error{Code: api.Uncertain, Err: cause,
			Message: fmt.Sprintf("replica %s was asked to take over and has not done so; it may yet (chubbyctl cell status)", target.ID)}
	}
}

// successor returns the next master, or "" after a second.
func (h *handOvers) successor(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, id := h.raft.LeaderWithID(); id != "" && string(id) != h.cfg.ID {
			return string(id)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ""
		}
	}
}

// beforeStop gives the mastership up before the replica stops. Otherwise the others elect after the election
// timeout.
func (h *handOvers) beforeStop(ctx context.Context) {
	if h.master.Load() == nil || len(h.servers()) == 1 || ctx.Err() != nil {
		return
	}
	select {
	case h.handing <- struct{}{}: // after one that an operator requested
	case <-ctx.Done():
		return
	}
	if err := h.transfer(ctx, ""); err != nil && ctx.Err() == nil {
		h.log.Warn("mastership was not handed over", "error", err)
	}
}

// For a drill, an operator can leave the cell without a master (docs/adr/0037-drills.md). This is a fail-over
// with a pause: the master ends its epoch, but still leads Raft, so that no other is elected. Then it falls
// silent, and the others elect a master. An epoch begins once a term, so leases, lock-delays and caches need no
// rules of their own.

// silentTimeouts is how many election timeouts a replica stays silent. The others elect after one or nearly
// two; a leader that hears nothing steps down after one.
const silentTimeouts = 3

// outage is a time without a master that an operator requested.
type outage struct {
	wire.Outage
	unwanted <-chan struct{} // closed when the call that requested it has ended
	ended    chan struct{}   // closed when this replica no longer leads
	begun    session.Instant
	unix     int64 // when that was, for display
}

// outages leaves the cell without a master for drills.
type outages struct {
	*member
	asked chan *outage           // the running epoch takes it
	now   atomic.Pointer[outage] // nil unless one is in progress here
	last  atomic.Int64           // when the last one began here, in seconds since 1970
}

// begin records that an outage begins, and returns why the epoch ends.
func (s *outages) begin(o *outage, epoch api.Epoch) error {
	o.begun, o.unix = s.clock(), s.cfg.Wall()
	s.now.Store(o)
	s.last.Store(o.unix)
	s.log.Warn("an outage begins that an operator has asked for", "event", "drill_began", "principal", o.Principal, "reason", o.Reason, "limit", o.Length, "epoch", epoch)
	return s.refusal(o)
}

// refusal returns what clients of this replica are told meanwhile.
func (s *outages) refusal(o *outage) error {
	return api.Errorf(api.Unavailable, "replica %s serves nobody for now, because of a drill that an operator has asked for; it ends by itself within %v: try again",
		s.cfg.ID, max(o.Length-s.clock().Sub(o.begun), 0).Round(time.Second)+time.Second)
}

// withhold keeps the cell without a master for the outage, then lets the others elect one. The epoch has ended;
// ctx ends when this replica no longer leads.
func (s *outages) withhold(ctx context.Context, o *outage) {
	defer close(o.ended)
	defer func() {
		s.now.Store(nil)
		s.log.Warn("the outage has ended", "event", "drill_ended", "principal", o.Principal, "took", s.clock().Sub(o.begun))
	}()
	length := time.NewTimer(o.Length)
	defer length.Stop()
	select {
	case <-length.C:
	case <-o.unwanted:
	case <-ctx.Done():
		return
	}
	silence := silentTimeouts * s.cfg.ElectionTimeout
	s.port.Hush(silence)
	late := time.NewTimer(silence)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C: // a drill must not leave a cell without a master
		s.fatal(fmt.Errorf("replica %s still leads after it has heard nothing of the others for %v, in an outage that an operator has asked for: it stops, so that one of them is elected", s.cfg.ID, silence))
	}
}
