package master

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// Listings come in pages. Replicated data comes from one immutable state, without the mutex; the master's own
// data is added under it. So a page costs the same in a cell of any size. The pages of a listing are of
// different moments: an entry that exists all the time is listed once.

// holderBytes returns the max length of a holder on the wire.
func holderBytes(h api.Holder) int {
	return tables.MaxEncoded + len(h.Principal) + len(h.Host) + len(h.Reason) + len(h.Owner)
}

// SessionBytes returns the max length of a session on the wire.
func SessionBytes(s api.SessionInfo) int { return tables.MaxEncoded + holderBytes(s.Holder) }

// LockBytes returns the max length of a lock on the wire.
func LockBytes(l api.LockInfo) int {
	bytes := tables.MaxEncoded + len(l.Path) + len(l.Revoked)
	for _, h := range l.Holders {
		bytes += holderBytes(h)
	}
	for _, w := range l.Waiters {
		bytes += tables.MaxEncoded + holderBytes(w.Holder)
	}
	return bytes
}

// ListSessions lists a page of the sessions, with both bounds of the rest of their leases. It omits invisible
// sessions; if only names one, it shows just that it exists. most limits a page, as in newPage.
func (in *Inspector) ListSessions(ctx context.Context, only api.SessionID, after []byte, most int) (p Page[api.SessionInfo], err error) {
	p = newPage[api.SessionInfo](most)
	done, err := in.beginPage(ctx)
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
				p.add(api.SessionInfo{Holder: api.Holder{Session: s.ID}}, tables.MaxEncoded)
			}
			continue
		}
		info := api.SessionInfo{
			Holder: api.Holder{Session: s.ID, Principal: s.Principal, Host: s.Host, PID: s.PID, SinceUnix: s.SinceUnix},
			Lease:  in.sessions.leaseOf(s.ID), MayCache: s.MayCache, Locks: locksOf(state, s.ID, &p.visited),
		}
		p.add(info, SessionBytes(info))
	}
	mu := in.epoch.mu.hold()
	defer mu.end()
	now := in.epoch.clock()
	for i := range p.List {
		info := &p.List[i]
		if info.Lease == 0 {
			continue // only its existence is listed
		}
		id := info.Session
		info.Handles, info.Unheard = in.tables.Handles.Count(id), in.tables.Leases.Unheard(id)
		if end, ok := in.tables.Leases.End(id); ok {
			info.LeftLeast = max(end.Sub(now), 0)
			info.LeftMost = info.LeftLeast + expirySlack
		}
		mu.pause(1)
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

// ListLocks lists a page of the locks at and below a name that are held, waited for or delayed, by name; if
// by is set, those that this session holds. most limits a page, as in newPage.
func (in *Inspector) ListLocks(ctx context.Context, prefix api.Name, by api.SessionID, after []byte, most int) (p Page[api.LockInfo], err error) {
	p = newPage[api.LockInfo](most)
	done, err := in.beginPage(ctx)
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
	slices.SortFunc(p.List, func(a, b api.LockInfo) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// maxBatch is how many nodes a listing of locks looks at together.
const maxBatch = 256

// listNodes lists locks of nodes, and returns the next page's mark. It visits at most maxVisited nodes.
func (in *Inspector) listNodes(p *Page[api.LockInfo], prefix api.Name, behind namespace.Mark) (next []byte) {
	state := in.epoch.state()
	var nodes []*namespace.Node
	more := false
	for _, node := range state.Tree.Below(prefix, behind) {
		if more = len(nodes) == maxVisited; more {
			break
		}
		nodes = append(nodes, node)
	}
	for batch := range slices.Chunk(nodes, maxBatch) {
		for i, asked := range in.lockedNodes(state, batch) {
			if asked && p.full() {
				return append([]byte{ofNodes}, behind...)
			}
			if behind = batch[i].Mark(); asked {
				addLock(p, in.lockInfo(state, batch[i].Name))
			}
		}
	}
	if more {
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
	mu := in.epoch.mu.hold()
	defer mu.end()
	if len(in.tables.Queues.ByName) == 0 {
		return
	}
	for i, node := range nodes {
		asked[i] = asked[i] || len(in.tables.Queues.ByName[node.Name]) > 0
		mu.pause(1)
	}
}

// listDelays lists delays on names without a node, and returns the next page's mark.
func (in *Inspector) listDelays(p *Page[api.LockInfo], prefix api.Name, from []byte) (next []byte) {
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

func (in *Inspector) listLocksOf(p *Page[api.LockInfo], prefix api.Name, id api.SessionID, after []byte) {
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

func addLock(p *Page[api.LockInfo], info api.LockInfo) { p.add(info, LockBytes(info)) }

// lockInfo describes one lock. It takes the mutex for the master's own data.
func (in *Inspector) lockInfo(state *raftfsm.State, name api.Name) api.LockInfo {
	info := api.LockInfo{Path: in.epoch.path(name)}
	node, ok := state.Tree.Get(name)
	if ok {
		info.Mode, info.Generation = node.Mode, node.Lock
		if node.Revoked != nil {
			info.Revoked = node.Revoked.Break()
		}
		info.Holders, info.MoreHolders = in.epoch.parties(state, node.Holders, api.MaxListed)
	}
	var first []tables.Waiter
	var now session.Instant
	func() {
		in.epoch.mu.Lock()
		defer in.epoch.mu.Unlock()
		now = in.epoch.clock()
		for i := range info.Holders {
			one := in.tables.Handles.Find(node.Holders[i].Owner)
			info.Holders[i].LockDelay = node.Holders[i].Delay
			info.Holders[i].Cached, info.Holders[i].Checked = one != nil && one.CachesLock, one != nil && one.Checked == node.Lock
		}
		info.Delayed = in.tables.Delays.Left(name, now)
		for ahead, w := range in.tables.Queues.InOrder(name) {
			if len(first) == api.MaxListed {
				info.MoreWaiters = len(in.tables.Queues.ByName[name]) - len(first)
				break
			}
			first = append(first, tables.Waiter{LockRequest: w.LockRequest, Since: w.Since, Streams: w.Streams})
			info.Waiters = append(info.Waiters, api.Waiter{Estimate: in.locks.estimateWait(name, len(info.Holders) > 0, ahead)})
		}
	}()
	for i, w := range first {
		who := namespace.Holder{Owner: namespace.Owner{Session: w.Claim.Mutation.Session}, Reason: w.Claim.Reason, DeclaredOwner: w.Claim.DeclaredOwner}
		one := &info.Waiters[i]
		one.Holder, one.Place, one.Mode = in.epoch.holder(state, who), i+1, w.Claim.Mode
		one.Waiting, one.Absent = now.Sub(w.Since), w.IsAbsent()
	}
	return info
}

// Page is a page of a listing.
type Page[T any] struct {
	List []T
	Next []byte // asks for the next page; empty on the last

	most    int // entries
	bytes   int // max length of the list on the wire
	visited int
}

// newPage returns a page of at most most entries; 0 is api.MaxPage, the max.
func newPage[T any](most int) Page[T] { return Page[T]{most: pageLength(most)} }

// pageLength returns the max number of entries if the caller wants most.
func pageLength(most int) int {
	if most <= 0 {
		return api.MaxPage
	}
	return min(most, api.MaxPage)
}

// full reports whether the page ends before the next entry. That must be visible: else the next mark shows
// that others follow.
func (p *Page[T]) full() bool {
	return len(p.List) >= p.most || p.bytes >= api.MaxPageBytes
}

// visit counts a visited item, and reports whether the page ends here.
func (p *Page[T]) visit() (enough bool) {
	p.visited++
	return p.visited > maxVisited
}

// add adds an entry of that length on the wire.
func (p *Page[T]) add(entry T, bytes int) {
	p.List = append(p.List, entry)
	p.bytes += bytes
}

// maxVisited bounds the nodes that one page looks at: a page may be empty without being the last.
const maxVisited = 4096

// maxPages bounds the pages and Explains made at a time. Each takes most of a megabyte before it counts as a
// reply, and the mutex many times. One client may ask for tens of thousands: gigabytes, and seconds of
// waiting.
const maxPages = 16

// expirySlack is how long after its lease an idle cell may take to end a session: the clock loop's period,
// and the entry.
const expirySlack = 500 * time.Millisecond
