package cell

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/sequencer"
)

// checkSequencer reports whether a sequencer still describes its lock: held, in
// that mode and generation, at some moment after the call began (Chubby §2.4).
// The error says why not.
func (m *master) checkSequencer(ctx context.Context, s sequencer.Sequencer) error {
	if _, err := m.fence.prove(ctx); err != nil {
		return err
	}
	g, err := m.guard(s)
	if err != nil {
		return err
	}
	return m.state().Stands(g)
}

// guard returns a sequencer of this cell as a condition for the log.
func (m *master) guard(s sequencer.Sequencer) (raftfsm.Guard, error) {
	if s.Cell != m.cellID {
		return raftfsm.Guard{}, api.Errorf(api.BadSequencer, "it is of another cell, or of an earlier founding of this one (%s, not %s)", s.Cell, m.cellID)
	}
	return raftfsm.Guard{Lock: s.Path.Name(), Mode: s.Mode, Generation: s.Generation}, nil
}

// guards returns what a change through a handle is conditional on: the handle's
// own sequencer and the one of the call, if there are any.
func (m *master) guards(h handle, text string) ([]raftfsm.Guard, error) {
	list := h.guards()
	if text == "" {
		return list, nil
	}
	s, err := sequencer.Parse(text)
	if err != nil {
		return nil, err
	}
	g, err := m.guard(s)
	return append(list, g), err
}

// listLocks lists the locks at and below a name that are held, waited for or
// delayed, by name.
func (m *master) listLocks(ctx context.Context, prefix api.Name) ([]*pb.LockInfo, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tree := m.state().Tree
	found := map[api.Name]bool{}
	for node := range tree.Locked(prefix) {
		found[node.Name] = true
	}
	for name := range tree.Delays() {
		found[name] = found[name] || within(name, prefix)
	}
	for name := range m.queues.byName {
		found[name] = found[name] || within(name, prefix)
	}
	var list []*pb.LockInfo
	for _, name := range sortedNames(found) {
		list = append(list, m.lockInfo(tree, name))
	}
	return list, nil
}

// lockInfo describes one lock. m.mu is held.
func (m *master) lockInfo(tree namespace.Tree, name api.Name) *pb.LockInfo {
	state, now := m.state(), m.clock()
	info := &pb.LockInfo{Path: m.path(name), DelayedNs: int64(m.delays.left(name, now))}
	if node, ok := tree.Get(name); ok {
		info.Mode, info.Generation, info.Revoked = pb.LockMode(node.Mode), uint64(node.Lock), node.Revoked
		for _, h := range node.Holders {
			info.Holders = append(info.Holders, pb.NewParty(m.holder(state, h)))
		}
	}
	for ahead, w := range m.queues.inLine(name) {
		who := namespace.Holder{Owner: namespace.Owner{Session: w.claim.Mutation.Session}, Reason: w.claim.Reason}
		info.Waiters = append(info.Waiters, &pb.Waiter{
			Party: pb.NewParty(m.holder(state, who)), Place: uint32(len(info.Waiters) + 1), Mode: pb.LockMode(w.claim.Mode),
			WaitingNs: int64(now.Sub(w.since)), EstimateNs: int64(m.estimate(name, len(info.Holders) > 0, ahead)), Absent: w.absent,
		})
	}
	return info
}

// listSessions lists the sessions with both bounds of what is left of their
// leases: none ends earlier than the one, nor, unless it is extended, lives
// longer than the other.
func (m *master) listSessions(ctx context.Context) ([]*pb.SessionInfo, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	state, now := m.state(), m.clock()
	var list []*pb.SessionInfo
	for s := range state.Sessions.All() {
		info := &pb.SessionInfo{
			Party: &pb.Party{
				Session: uint64(s.ID), Principal: s.Principal, Host: s.Host, Pid: int64(s.PID), SinceUnix: s.SinceUnix,
			},
			LeaseNs: int64(m.leaseOf(s.ID)), Handles: uint32(m.handles.count(s.ID)), MayCache: s.MayCache,
		}
		if end, ok := m.leases.End(s.ID); ok {
			info.LeftLeastNs = int64(max(end.Sub(now), 0))
			info.LeftMostNs = info.LeftLeastNs + int64(expirySlack)
		}
		for node := range state.Tree.OwnedBy(s.ID) {
			for _, h := range node.Holders {
				if h.Session == s.ID {
					info.Locks++
				}
			}
		}
		list = append(list, info)
	}
	return list, nil
}

// expirySlack is how long after its lease an idle cell may take to end a
// session: the clock loop's period, and the entry that ends it.
const expirySlack = 500 * time.Millisecond

// within reports whether name is prefix or below it.
func within(name, prefix api.Name) bool {
	rest, ok := strings.CutPrefix(string(name), string(prefix))
	return ok && (rest == "" || rest[0] == '/')
}

// sortedNames returns the names that are marked true, in their order.
func sortedNames(marked map[api.Name]bool) []api.Name {
	var names []api.Name
	for name, ok := range marked {
		if ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
