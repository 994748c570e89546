package cell

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"google.golang.org/protobuf/proto"
)

// Listings come in pages. What is replicated is read from one state, which is
// immutable, without the mutex; what only the master knows is added page by page
// under it. So a listing costs the same for a cell of any size, page by page, and
// the pages of one listing are of different moments: what is there all the time is
// in it once.

// maxVisited bounds the nodes that one page of a listing looks at: a page may be
// empty, and still not be the last.
const maxVisited = 4096

// maxPages bounds the pages, and Explains, that are made at a time. Each takes most of a
// megabyte before it can be counted as a reply, and the mutex again and again: tens of
// thousands at a time, as one client may ask for, would take gigabytes, and make everybody
// else wait for the mutex for seconds.
const maxPages = 16

// page waits until a page may be made; done is to be called when it has been. It is for
// after the proof of leadership, which may take seconds.
func (m *master) page(ctx context.Context) (done func(), err error) {
	select {
	case m.pages <- struct{}{}:
		return func() { <-m.pages }, nil
	case <-ctx.Done():
		return nil, &api.Error{
			Code: api.Unavailable, Err: context.Cause(ctx),
			Message: fmt.Sprintf("the call ended while it waited for other listings, of which %d are made at a time; try again", maxPages),
		}
	case <-m.ctx.Done():
		return nil, context.Cause(m.ctx)
	}
}

// listing collects what one page lists.
type listing[T proto.Message] struct {
	list    []T
	bytes   int
	visited int
}

// full reports whether the page should end before the next entry, and counts one
// more that was looked at.
func (p *listing[T]) full() bool {
	p.visited++
	return len(p.list) >= api.MaxPage || p.bytes >= api.MaxPageBytes || p.visited > maxVisited
}

// add adds an entry.
func (p *listing[T]) add(entry T) {
	p.list = append(p.list, entry)
	p.bytes += proto.Size(entry)
}

// listSessions lists a page of the sessions with both bounds of what is left of
// their leases: none ends earlier than the one, nor, unless it is extended, lives
// longer than the other.
func (m *master) listSessions(ctx context.Context, q *pb.ListSessionsRequest) (*pb.ListSessionsReply, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	done, err := m.page(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	state := m.state()
	first := api.SessionID(q.GetSession())
	if first == 0 && len(q.GetAfter()) == 8 {
		first = api.SessionID(binary.BigEndian.Uint64(q.GetAfter())) + 1
	}
	p, reply := listing[*pb.SessionInfo]{}, &pb.ListSessionsReply{}
	var last api.SessionID
	for s := range state.Sessions.From(first) {
		if only := q.GetSession(); only != 0 && uint64(s.ID) != only {
			break
		}
		if p.full() {
			reply.Next = binary.BigEndian.AppendUint64(nil, uint64(last))
			break
		}
		p.add(&pb.SessionInfo{
			Party: &pb.Party{
				Session: uint64(s.ID), Principal: s.Principal, Host: s.Host, Pid: int64(s.PID), SinceUnix: s.SinceUnix,
			},
			LeaseNs: int64(m.leaseOf(s.ID)), MayCache: s.MayCache, Locks: locksOf(state, s.ID, &p.visited),
		})
		last = s.ID
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	for _, info := range p.list {
		id := api.SessionID(info.GetParty().GetSession())
		info.Handles = uint32(m.handles.count(id))
		if end, ok := m.leases.End(id); ok {
			info.LeftLeastNs = int64(max(end.Sub(now), 0))
			info.LeftMostNs = info.LeftLeastNs + int64(expirySlack)
		}
		m.mu.pause(1)
	}
	reply.Sessions = p.list
	return reply, nil
}

// locksOf counts the locks that a session holds, and the nodes that it looked at.
func locksOf(state *raftfsm.State, id api.SessionID, visited *int) (locks uint32) {
	for node := range state.Tree.OwnedBy(id) {
		*visited++
		if slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == id }) {
			locks++
		}
	}
	return locks
}

// The parts of a listing of locks, which a page's mark begins with.
const (
	ofNodes  byte = 1 // locks of nodes, by their marks
	ofDelays byte = 2 // delays on names of which there is no node
)

// listLocks lists a page of the locks at and below a name that are held, waited
// for or delayed, by name.
func (m *master) listLocks(ctx context.Context, prefix api.Name, q *pb.ListLocksRequest) (*pb.ListLocksReply, error) {
	if _, err := m.fence.prove(ctx); err != nil {
		return nil, err
	}
	done, err := m.page(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after := q.GetAfter()
	if id := api.SessionID(q.GetSession()); id != 0 {
		return m.listLocksOf(prefix, id, after), nil
	}
	p, reply := listing[*pb.LockInfo]{}, &pb.ListLocksReply{}
	if len(after) == 0 || after[0] == ofNodes {
		reply.Next = m.listNodes(&p, prefix, after[min(len(after), 1):])
		after = nil
	}
	if reply.Next == nil {
		reply.Next = m.listDelays(&p, prefix, after[min(len(after), 1):])
	}
	slices.SortFunc(p.list, func(a, b *pb.LockInfo) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	reply.Locks = p.list
	return reply, nil
}

// listNodes lists locks of nodes, and returns where the next page begins.
func (m *master) listNodes(p *listing[*pb.LockInfo], prefix api.Name, behind namespace.Mark) (next []byte) {
	state := m.state()
	var nodes []*namespace.Node
	var last namespace.Mark
	for mark, node := range state.Tree.Below(prefix, behind) {
		if len(nodes) == maxVisited {
			next = append([]byte{ofNodes}, last...)
			break
		}
		nodes, last = append(nodes, node), mark
	}
	for i, asked := range m.locked(state, nodes) {
		if !asked {
			continue
		}
		if p.full() {
			return append([]byte{ofNodes}, nodes[i-1].Mark()...) // some were listed, so i > 0
		}
		p.add(m.lockInfo(state, nodes[i].Name))
	}
	return next
}

// locked says of which nodes the locks are held, waited for or delayed.
func (m *master) locked(state *raftfsm.State, nodes []*namespace.Node) []bool {
	asked := make([]bool, len(nodes))
	for i, node := range nodes {
		_, delayed := state.Tree.Delay(node.Name)
		asked[i] = delayed || len(node.Holders) > 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queues.byName) == 0 {
		return asked
	}
	for i, node := range nodes {
		asked[i] = asked[i] || len(m.queues.byName[node.Name]) > 0
		m.mu.pause(1)
	}
	return asked
}

// listDelays lists the delays on names without a node, and returns where the next
// page begins.
func (m *master) listDelays(p *listing[*pb.LockInfo], prefix api.Name, from []byte) (next []byte) {
	state := m.state()
	first := prefix
	if len(from) > 0 {
		first = api.Name(from)
	}
	for name := range state.Tree.DelaysFrom(first) {
		if !strings.HasPrefix(string(name), string(prefix)) {
			break
		}
		if p.full() {
			return append([]byte{ofDelays}, name...)
		}
		if _, there := state.Tree.Get(name); !there && within(name, prefix) {
			p.add(m.lockInfo(state, name))
		}
	}
	return nil
}

// listLocksOf lists the locks that one session holds.
func (m *master) listLocksOf(prefix api.Name, id api.SessionID, after []byte) *pb.ListLocksReply {
	state := m.state()
	p, reply := listing[*pb.LockInfo]{}, &pb.ListLocksReply{}
	var last api.Name
	for node := range state.Tree.OwnedBy(id) {
		if node.Name <= api.Name(after) && len(after) > 0 {
			continue
		}
		if p.full() {
			reply.Next = []byte(last)
			break
		}
		last = node.Name
		if within(node.Name, prefix) && slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == id }) {
			p.add(m.lockInfo(state, node.Name))
		}
	}
	reply.Locks = p.list
	return reply
}

// lockInfo describes one lock. It holds the mutex for what only the master knows.
func (m *master) lockInfo(state *raftfsm.State, name api.Name) *pb.LockInfo {
	info := &pb.LockInfo{Path: m.path(name)}
	if node, ok := state.Tree.Get(name); ok {
		info.Mode, info.Generation, info.Revoked = pb.LockMode(node.Mode), uint64(node.Lock), node.Revoked
		info.Holders, info.MoreHolders = m.parties(state, node.Holders, api.MaxListed)
	}
	var first []waiter
	var now session.Instant
	func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		now = m.clock()
		info.DelayedNs = int64(m.delays.left(name, now))
		for ahead, w := range m.queues.inLine(name) {
			if len(first) == api.MaxListed {
				info.MoreWaiters = uint32(len(m.queues.byName[name]) - len(first))
				break
			}
			first = append(first, waiter{claim: w.claim, since: w.since, absent: w.absent})
			info.Waiters = append(info.Waiters, &pb.Waiter{EstimateNs: int64(m.estimate(name, len(info.Holders) > 0, ahead))})
		}
	}()
	for i, w := range first {
		who := namespace.Holder{Owner: namespace.Owner{Session: w.claim.Mutation.Session}, Reason: w.claim.Reason}
		one := info.GetWaiters()[i]
		one.Party, one.Place, one.Mode = pb.NewParty(m.holder(state, who)), uint32(i+1), pb.LockMode(w.claim.Mode)
		one.WaitingNs, one.Absent = int64(now.Sub(w.since)), w.absent
	}
	return info
}

// parties describes the first holders, at most most of them, and says how many
// more there are.
func (m *master) parties(state *raftfsm.State, holders []namespace.Holder, most int) (list []*pb.Party, more uint32) {
	some := holders[:min(len(holders), most)]
	for _, h := range some {
		list = append(list, pb.NewParty(m.holder(state, h)))
	}
	return list, uint32(len(holders) - len(some))
}
