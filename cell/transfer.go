package cell

import (
	"context"
	"errors"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
)

// Transfer hands the mastership over to the replica of that id, or to the one
// whose log is longest if it is empty. It returns once the other has been asked
// to stand for election, with its log complete: it wins as a rule, within
// milliseconds. No session notices. The errors are NotMaster, InvalidArgument for
// an id that is no replica's, Uncertain if the other does not catch up.
func (r *Replica) Transfer(ctx context.Context, to string) error {
	if r.master.Load() == nil {
		return r.notMaster()
	}
	var future raft.Future
	switch member, ok := r.member(to); {
	case to == r.cfg.ID: // there is nothing to do
		return nil
	case to == "":
		future = r.raft.LeadershipTransfer()
	case ok:
		future = r.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(member.Raft))
	default:
		return api.Errorf(api.InvalidArgument, "%q is no replica of the cell; see chubbyctl cell members", to)
	}
	handed := make(chan error, 1)
	go func() { handed <- future.Error() }() // ends with Raft, at the latest
	select {
	case err := <-handed:
		switch {
		case err == nil:
			return nil
		case errors.Is(err, raft.ErrNotLeader):
			return r.notMaster()
		}
		return &api.Error{Code: api.Uncertain, Message: "the mastership was not handed over, and may yet be: is the other replica running, and caught up (chubbyctl cell status)?", Err: err}
	case <-ctx.Done():
		return &api.Error{Code: api.Uncertain, Message: "the mastership may yet be handed over", Err: context.Cause(ctx)}
	}
}

// member returns the member of that id.
func (r *Replica) member(id string) (Member, bool) {
	for _, m := range r.cfg.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// Transfer is for those who may change the ACL of the root: it stops the service
// for a moment.
func (s *service) Transfer(ctx context.Context, q *pb.TransferRequest) (*pb.TransferReply, error) {
	const op = "transfer"
	m, err := s.master()
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	who, err := m.admit(q.GetCaller())
	if err == nil {
		err = m.mayOperate(ctx, who)
	}
	if err == nil {
		err = s.r.Transfer(ctx, q.GetTo())
	}
	if err != nil {
		return nil, s.fail(op, "", err)
	}
	if q.GetTo() == s.r.cfg.ID {
		return &pb.TransferReply{Master: q.GetTo()}, nil
	}
	return &pb.TransferReply{Master: s.r.successor(ctx)}, nil
}

// mayOperate checks that a session's principal may do what concerns the whole
// cell.
func (m *master) mayOperate(ctx context.Context, who caller) error {
	if _, err := m.fence.prove(ctx); err != nil {
		return err
	}
	tree := m.state().Tree
	root, ok := tree.Get("")
	if !ok {
		return api.Errorf(api.Corrupt, "the cell has no root")
	}
	return tree.Permit(root, m.principal(who.session), namespace.ToChange)
}

// successor returns the master after this replica, "" if there is none within a
// second.
func (r *Replica) successor(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, id := r.raft.LeaderWithID(); id != "" && string(id) != r.cfg.ID {
			return string(id)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ""
		}
	}
}

// handOver gives the mastership up before the replica stops. It is worth a try:
// without it the others elect a new master after the election timeout.
func (r *Replica) handOver(ctx context.Context) {
	if r.master.Load() == nil || len(r.cfg.Members) == 1 || ctx.Err() != nil {
		return
	}
	if err := r.Transfer(ctx, ""); err != nil && ctx.Err() == nil {
		r.log.Warn("mastership was not handed over", "error", err)
	}
}

// ExpireSession ends a session as if nothing had been heard of its client for a
// whole lease. It is for drills and tests: whoever holds something in that
// session loses it without having been told. It returns when the end is
// committed. The errors are NotMaster and NotFound.
func (r *Replica) ExpireSession(ctx context.Context, id api.SessionID) error {
	m := r.master.Load()
	if m == nil {
		return r.notMaster()
	}
	return m.expire(ctx, id)
}

// expire ends a session.
func (m *master) expire(ctx context.Context, id api.SessionID) error {
	m.mu.Lock()
	if !m.leases.Alive(id) {
		m.mu.Unlock()
		return api.Errorf(api.NotFound, "there is no session %v", id)
	}
	m.leases.Stop(id)
	m.mu.Unlock()
	return m.endNow(ctx, raftfsm.End{Session: id, Reason: api.ByExpiry})
}
