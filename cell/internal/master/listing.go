package master

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Listings come in pages. Replicated data comes from one immutable state, without the mutex; the master's own
// data is added under it. So a page costs the same in a cell of any size. The pages of a listing are of
// different moments: an entry that exists all the time is listed once.

// holderBytes returns the max length of a holder on the wire.
func holderBytes(h api.Holder) int {
	return maxEncoded + len(h.Principal) + len(h.Host) + len(h.Reason) + len(h.Owner)
}

// SessionInfo describes a session.
type SessionInfo struct {
	Session   api.Holder    // its owner
	Lease     time.Duration // as granted
	LeftLeast time.Duration // it lives at least this long
	LeftMost  time.Duration // and ends within this time, unless it is extended
	Handles   int
	Locks     int
	MayCache  bool
	Unheard   bool // its client has not returned since the fail-over
}

// WireSize returns the max length on the wire.
func (s *SessionInfo) WireSize() int { return maxEncoded + holderBytes(s.Session) }

// ListSessions lists a page of the sessions, with both bounds of the rest of their leases. It omits invisible
// sessions; if only names one, it shows just that it exists. most limits a page, as in newPage.
func (in *Inspector) ListSessions(ctx context.Context, only api.SessionID, after []byte, most int) (p Page[*SessionInfo], err error) {
	p = newPage[*SessionInfo](most)
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return p, err
	}
	done, err := in.waitForPage(ctx)
	if err != nil {
		return p, err
	}
	defer done()
	state := in.epoch.state()
	sight := in.sightOf(state)
	first := only
	if first == 0 && len(after) == 8 {
		first = api.SessionID(binary.BigEndian.Uint64(after)) + 1
	}
	var last api.SessionID
	for s := range state.Sessions.From(first) {
		if only != 0 && s.ID != only {
			break
		}
		if p.visit() || sight.sees(s.Principal) && p.full() {
			p.Next = binary.BigEndian.AppendUint64(nil, uint64(last))
			break
		}
		if last = s.ID; !sight.sees(s.Principal) {
			if only != 0 { // no secret: recipes need to know whether it has ended
				p.add(&SessionInfo{Session: api.Holder{Session: s.ID}}, maxEncoded)
			}
			continue
		}
		info := &SessionInfo{
			Session: api.Holder{Session: s.ID, Principal: s.Principal, Host: s.Host, PID: s.PID, SinceUnix: s.SinceUnix},
			Lease:   in.sessions.leaseOf(s.ID), MayCache: s.MayCache, Locks: locksOf(state, s.ID, &p.visited),
		}
		p.add(info, info.WireSize())
	}
	in.epoch.mu.Lock()
	defer in.epoch.mu.Unlock()
	now := in.epoch.clock()
	for _, info := range p.List {
		if info.Lease == 0 {
			continue // only its existence is listed
		}
		id := info.Session.Session
		info.Handles, info.Unheard = in.tables.handles.count(id), in.tables.leases.Unheard(id)
		if end, ok := in.tables.leases.End(id); ok {
			info.LeftLeast = max(end.Sub(now), 0)
			info.LeftMost = info.LeftLeast + expirySlack
		}
		in.epoch.mu.pause(1)
	}
	return p, nil
}

// locksOf counts a session's locks, and in visited the nodes it looked at.
func locksOf(state *raftfsm.State, id api.SessionID, visited *int) (locks int) {
	for node := range state.Tree.OwnedBy(id) {
		*visited++
		if slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == id }) {
			locks++
		}
	}
	return locks
}

// Parts of a listing of locks, the first byte of a page's mark.
const (
	ofNodes  byte = 1 // locks of nodes, by their marks
	ofDelays byte = 2 // delays on names without a node
)

// LockInfo describes a lock.
type LockInfo struct {
	Path        string
	Mode        api.LockMode // 0 if it has no holder
	Generation  api.Generation
	Holders     []api.Holder // at most api.MaxListed
	MoreHolders int
	Waiters     []Waiter // the first api.MaxListed
	MoreWaiters int
	Delayed     time.Duration
	Revoked     string // why it is being revoked; "" if it is not
}

// WireSize returns the max length on the wire.
func (l *LockInfo) WireSize() int {
	bytes := maxEncoded + len(l.Path) + len(l.Revoked)
	for _, h := range l.Holders {
		bytes += holderBytes(h)
	}
	for _, w := range l.Waiters {
		bytes += maxEncoded + holderBytes(w.Owner)
	}
	return bytes
}

// Waiter describes a request that waits for a lock.
type Waiter struct {
	Owner    api.Holder // of the request
	Place    int        // 1 is next
	Mode     api.LockMode
	Waiting  time.Duration // so far
	Absent   bool          // its stream is broken; its place is kept for a while
	Estimate time.Duration // of the wait; 0 if unknown
}

// ListLocks lists a page of the locks at and below a name that are held, waited for or delayed, by name; if
// by is set, those that this session holds. most limits a page, as in newPage.
func (in *Inspector) ListLocks(ctx context.Context, prefix api.Name, by api.SessionID, after []byte, most int) (p Page[*LockInfo], err error) {
	p = newPage[*LockInfo](most)
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return p, err
	}
	done, err := in.waitForPage(ctx)
	if err != nil {
		return p, err
	}
	defer done()
	if by != 0 {
		in.listLocksOf(&p, prefix, by, after)
		return p, nil
	}
	if len(after) == 0 || after[0] == ofNodes {
		p.Next = in.listNodes(&p, prefix, after[min(len(after), 1):])
		after = nil
	}
	if p.Next == nil {
		p.Next = in.listDelays(&p, prefix, after[min(len(after), 1):])
	}
	slices.SortFunc(p.List, func(a, b *LockInfo) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// maxBatch is how many nodes a listing of locks looks at together.
const maxBatch = 256

// listNodes lists locks of nodes, and returns the next page's mark. It visits at most maxVisited nodes.
func (in *Inspector) listNodes(p *Page[*LockInfo], prefix api.Name, behind namespace.Mark) (next []byte) {
	state := in.epoch.state()
	var batch []*namespace.Node
	list := func() (full bool) {
		for i, asked := range in.lockedNodes(state, batch) {
			if asked {
				if p.full() {
					return true
				}
				addLock(p, in.lockInfo(state, batch[i].Name))
			}
			behind = batch[i].Mark()
		}
		batch = batch[:0]
		return false
	}
	seen := 0
	for _, node := range state.Tree.Below(prefix, behind) {
		if (len(batch) == maxBatch || seen == maxVisited) && list() || seen == maxVisited {
			return append([]byte{ofNodes}, behind...)
		}
		batch, seen = append(batch, node), seen+1
	}
	if list() {
		return append([]byte{ofNodes}, behind...)
	}
	return nil
}

// lockedNodes reports which nodes' locks are held, waited for or delayed, and visible.
func (in *Inspector) lockedNodes(state *raftfsm.State, nodes []*namespace.Node) []bool {
	asked := make([]bool, len(nodes))
	for i, node := range nodes {
		_, delayed := state.Tree.Delay(node.Name)
		asked[i] = delayed || len(node.Holders) > 0
	}
	addQueues(in, asked, nodes)
	sight := in.sightOf(state)
	for i, node := range nodes {
		//mutant: _ = node; _ = sight; _ = i //by TestLookingTakesRights of ./cell
		asked[i] = asked[i] && sight.reads(node.Name)
	}
	return asked
}

// addQueues marks the nodes whose locks have waiters.
func addQueues(in *Inspector, asked []bool, nodes []*namespace.Node) {
	in.epoch.mu.Lock()
	defer in.epoch.mu.Unlock()
	if len(in.tables.queues.byName) == 0 {
		return
	}
	for i, node := range nodes {
		asked[i] = asked[i] || len(in.tables.queues.byName[node.Name]) > 0
		in.epoch.mu.pause(1)
	}
}

// listDelays lists delays on names without a node, and returns the next page's mark.
func (in *Inspector) listDelays(p *Page[*LockInfo], prefix api.Name, from []byte) (next []byte) {
	state := in.epoch.state()
	first, sight := prefix, in.sightOf(state)
	if len(from) > 0 {
		first = api.Name(from)
	}
	for name := range state.Tree.DelaysFrom(first) {
		if !strings.HasPrefix(string(name), string(prefix)) {
			break
		}
		_, there := state.Tree.Get(name)
		listed := !there && within(name, prefix) && sight.reads(name)
		if p.visit() || listed && p.full() {
			return append([]byte{ofDelays}, name...)
		}
		if listed {
			addLock(p, in.lockInfo(state, name))
		}
	}
	return nil
}

func (in *Inspector) listLocksOf(p *Page[*LockInfo], prefix api.Name, id api.SessionID, after []byte) {
	state := in.epoch.state()
	sight := in.sightOf(state)
	var last api.Name
	for node := range state.Tree.OwnedBy(id) {
		if node.Name <= api.Name(after) && len(after) > 0 {
			continue
		}
		listed := within(node.Name, prefix) && sight.reads(node.Name) && slices.ContainsFunc(node.Holders, func(h namespace.Holder) bool { return h.Session == id })
		if p.visit() || listed && p.full() {
			p.Next = []byte(last)
			break
		}
		if last = node.Name; listed {
			addLock(p, in.lockInfo(state, node.Name))
		}
	}
}

func addLock(p *Page[*LockInfo], info *LockInfo) { p.add(info, info.WireSize()) }

// lockInfo describes one lock. It takes the mutex for the master's own data.
func (in *Inspector) lockInfo(state *raftfsm.State, name api.Name) *LockInfo {
	info := &LockInfo{Path: in.epoch.path(name)}
	node, ok := state.Tree.Get(name)
	if ok {
		info.Mode, info.Generation = node.Mode, node.Lock
		if node.Revoked != nil {
			info.Revoked = node.Revoked.Break()
		}
		info.Holders, info.MoreHolders = in.epoch.parties(state, node.Holders, api.MaxListed)
	}
	var first []waiter
	var now session.Instant
	func() {
		in.epoch.mu.Lock()
		defer in.epoch.mu.Unlock()
		now = in.epoch.clock()
		for i := range info.Holders {
			one := in.tables.handles.find(node.Holders[i].Owner)
			info.Holders[i].LockDelay = node.Holders[i].Delay
			info.Holders[i].Cached, info.Holders[i].Checked = one != nil && one.CachesLock, one != nil && one.checked == node.Lock
		}
		info.Delayed = in.tables.delays.left(name, now)
		for ahead, w := range in.tables.queues.inOrder(name) {
			if len(first) == api.MaxListed {
				info.MoreWaiters = len(in.tables.queues.byName[name]) - len(first)
				break
			}
			first = append(first, waiter{claim: w.claim, since: w.since, absent: w.absent})
			info.Waiters = append(info.Waiters, Waiter{Estimate: in.locks.estimateWait(name, len(info.Holders) > 0, ahead)})
		}
	}()
	for i, w := range first {
		who := namespace.Holder{Owner: namespace.Owner{Session: w.claim.Mutation.Session}, Reason: w.claim.Reason, DeclaredOwner: w.claim.DeclaredOwner}
		one := &info.Waiters[i]
		one.Owner, one.Place, one.Mode = in.epoch.holder(state, who), i+1, w.claim.Mode
		one.Waiting, one.Absent = now.Sub(w.since), w.absent
	}
	return info
}

// parties describes at most most holders, and counts the others.
func (e *epoch) parties(state *raftfsm.State, holders []namespace.Holder, most int) (list []api.Holder, more int) {
	some := holders[:min(len(holders), most)]
	for _, h := range some {
		list = append(list, e.holder(state, h))
	}
	return list, len(holders) - len(some)
}
