package tables

import (
	"container/list"
	"iter"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Copyset knows which sessions may cache which names (Chubby §2.7), and which changes wait for them. It goes
// by name, because clients also cache the absence of a node. One invalidation drops all of a name: contents,
// metadata, absence, the list of its children.
//
// The rule: while a session may have a copy of a name, and its lease runs, no change of that name takes
// effect. The lease is the cache lease (renewCache), or else the session's. register enters a copy before
// the read, and never during a change: the node is uncacheable then, so readers never wait and one round of
// acknowledgements is enough.
type Copyset struct {
	Copies   map[api.Name]map[api.SessionID]*CachedCopy
	Names    map[api.SessionID]map[api.Name]*CachedCopy // the same, by session
	Told     map[api.SessionID][]*CachedCopy            // pending invalidations, in order
	Order    map[api.SessionID]*list.List               // of *CachedCopy without invalidation, least recently used first
	Bytes    map[api.SessionID]int                      // size of its copies here
	Used     Tally                                      // the same, by principal
	Changing map[api.Name]int                           // number of changes of a name under way
	Flush    *Clearing                                  // what changes wait for after a takeover, or nil
	Until    map[api.SessionID]session.Instant          // ends of granted cache leases
	Lapses   session.Timetable[*Clearing]               // ends of the cache leases that clearings wait for

	Clearings map[api.Name]*Clearing // those that changes wait for
}

// CachedCopy is what a session may have of a name.
type CachedCopy struct {
	Name      api.Name
	Session   api.SessionID
	principal string
	Leased    bool            // used only under cache leases
	Place     *list.Element   // in order
	Sequence  uint64          // of its invalidation; 0 without one
	Posted    session.Instant // when that was posted
	Entered   session.Instant // when it was entered
}

func newCopyset() *Copyset {
	return &Copyset{
		Copies: map[api.Name]map[api.SessionID]*CachedCopy{}, Names: map[api.SessionID]map[api.Name]*CachedCopy{},
		Told: map[api.SessionID][]*CachedCopy{}, Changing: map[api.Name]int{},
		Order: map[api.SessionID]*list.List{}, Bytes: map[api.SessionID]int{}, Used: newTally(),
		Clearings: map[api.Name]*Clearing{}, Until: map[api.SessionID]session.Instant{},
	}
}

// Bounds of copies. Each takes copyBytes and its name. At maxSessionCopies (some 15,000 names) a session has
// to drop the least recently used, a part at a time, and goes on caching; meanwhile it may reach
// maxSessionCopiesUntold. A principal's sessions together have maxPrincipalCopies. Beyond that each drops
// copies of its own, and one without copies caches nothing.
const (
	copyBytes              = 512
	maxSessionCopies       = 8 << 20
	maxSessionCopiesUntold = maxSessionCopies + maxSessionCopies/16
	maxPrincipalCopies     = 512 << 20

	MaxCopies = maxSessionCopiesUntold / copyBytes // of one session
)

func (one *CachedCopy) size() int { return copyBytes + len(one.Name) }

// Register enters a session that is about to read a name, and reports whether it may keep the result. leased
// says that it uses the copy only under cache leases.
func (c *Copyset) Register(id api.SessionID, principal string, name api.Name, leased bool, now session.Instant) bool {
	if c.IsChanging(name) {
		return false
	}
	if one := c.Names[id][name]; one != nil {
		if one.Sequence == 0 {
			c.Order[id].MoveToBack(one.Place)
		}
		return one.Sequence == 0
	}
	if c.Bytes[id] >= maxSessionCopiesUntold || c.Used.Of[principal] >= maxPrincipalCopies {
		return false
	}
	if c.Names[id] == nil {
		c.Names[id], c.Order[id] = map[api.Name]*CachedCopy{}, list.New()
	}
	if c.Copies[name] == nil {
		c.Copies[name] = map[api.SessionID]*CachedCopy{}
	}
	one := &CachedCopy{Name: name, Session: id, principal: principal, Leased: leased, Entered: now}
	one.Place = c.Order[id].PushBack(one)
	c.Names[id][name], c.Copies[name][id] = one, one
	c.Bytes[id] += one.size()
	c.Used.add(principal, one.size())
	return true
}

// IsChanging reports whether a change of a name is under way. A change of their directory counts for all
// access control lists: a write of the list of operators closes all of them when applied
// (raftfsm.State.TouchedBeside), also later ones.
func (c *Copyset) IsChanging(name api.Name) bool {
	return c.Changing[name] > 0 || name.Parent() == api.ACLDir && c.Changing[api.ACLDir] > 0
}

// Surplus returns the copies that a session has to drop for room: a sixteenth, and none while invalidations
// are pending.
func (c *Copyset) Surplus(id api.SessionID, principal string) (drop []*CachedCopy) {
	if c.Bytes[id] < maxSessionCopies && c.Used.Of[principal] < maxPrincipalCopies || len(c.Told[id]) > 0 || c.Order[id] == nil {
		return nil
	}
	bytes := 0
	for e := c.Order[id].Front(); e != nil && bytes <= c.Bytes[id]/16; e = e.Next() {
		one := e.Value.(*CachedCopy)
		drop, bytes = append(drop, one), bytes+one.size()
	}
	return drop
}

// ForgetOwn drops a session's copy of a node that it deleted: its client keeps nothing of it. Not when the
// change begins: a late copy of the request would begin it again, when the client may have read the name
// anew.
func (c *Copyset) ForgetOwn(id api.SessionID, name api.Name) {
	if one := c.Names[id][name]; one != nil && one.Sequence == 0 {
		c.Forget(one)
	}
}

// Forget drops a copy.
func (c *Copyset) Forget(one *CachedCopy) {
	if c.Names[one.Session][one.Name] != one {
		return
	}
	delete(c.Names[one.Session], one.Name)
	c.Order[one.Session].Remove(one.Place)
	c.Bytes[one.Session] -= one.size()
	if len(c.Names[one.Session]) == 0 {
		delete(c.Names, one.Session)
		delete(c.Order, one.Session)
		delete(c.Bytes, one.Session)
	}
	c.Used.add(one.principal, -one.size())
	c.Release(one)
}

// Release drops a copy, and ends a clearing that waited only for it.
func (c *Copyset) Release(one *CachedCopy) {
	if c.Copies[one.Name][one.Session] != one {
		return
	}
	delete(c.Copies[one.Name], one.Session)
	if len(c.Copies[one.Name]) == 0 {
		delete(c.Copies, one.Name)
	}
	if cl := c.Clearings[one.Name]; cl != nil && !c.CachedBeside(cl.By, one.Name) {
		delete(c.Clearings, one.Name)
		c.finish(cl)
	}
}

// Acknowledge records the events that a session has received, and forgets the copies they invalidated: at
// most most. It reports whether that was all.
func (c *Copyset) Acknowledge(id api.SessionID, sequence uint64, most int) (done bool) {
	told := c.Told[id]
	for len(told) > 0 && told[0].Sequence <= sequence {
		if most--; most < 0 {
			c.Told[id] = told
			return false
		}
		c.Forget(told[0])
		told = told[1:]
	}
	if len(told) == 0 {
		delete(c.Told, id)
	} else {
		c.Told[id] = told
	}
	if sequence > 0 { // the first event of an epoch is that of the fail-over
		c.Flushed(id)
	}
	return true
}

// Drop forgets at most most copies of an ended session. It reports whether that was all.
func (c *Copyset) Drop(id api.SessionID, most int) (done bool) {
	for _, one := range c.Names[id] {
		if most--; most < 0 {
			return false
		}
		c.Forget(one)
	}
	delete(c.Told, id)
	delete(c.Until, id)
	c.Flushed(id)
	return true
}

// Clearing waits until all sessions except by have dropped a name from their caches. All changes of the name
// share it, so a change costs the same for many sessions. The name is uncacheable meanwhile: no session
// joins, and each gets one event.
//
// After a takeover every change waits for a clearing without a name.
type Clearing struct {
	Name    api.Name
	By      api.SessionID          // only its changes wait, and it dropped the name before; 0 if there are others
	Since   session.Instant        // when the first of its sessions was told
	Changes int                    // that wait for it
	Left    map[api.SessionID]bool // after a takeover: sessions without an acknowledgement
	Done    chan struct{}          // closed at the end
	Ended   []func()               // called then, with epoch.mu held
}

// IsDone reports whether a clearing has ended.
func (cl *Clearing) IsDone() bool {
	select {
	case <-cl.Done:
		return true
	default:
		return false
	}
}

// Change is one change of what clients may cache.
type Change struct {
	Names     []api.Name
	Since     session.Instant // when the first of its sessions was told
	Clearings []*Clearing     // that it waits for
}

// NextClearing returns a clearing that the change still waits for, or nil.
func (ch *Change) NextClearing() *Clearing {
	for _, cl := range ch.Clearings {
		if !cl.IsDone() {
			return cl
		}
	}
	return nil
}

// CachedBeside reports whether another session may cache a name.
func (c *Copyset) CachedBeside(by api.SessionID, name api.Name) bool {
	copies := c.Copies[name]
	return len(copies) > 1 || len(copies) == 1 && copies[by] == nil
}

func (c *Copyset) finish(cl *Clearing) {
	close(cl.Done)
	c.Lapses.Drop(cl)
	for _, ended := range cl.Ended {
		ended()
	}
	cl.Ended = nil
}

// Flushed records that a session has acknowledged the takeover, or ended.
func (c *Copyset) Flushed(id api.SessionID) {
	if c.Flush == nil || !c.Flush.Left[id] {
		return
	}
	if delete(c.Flush.Left, id); len(c.Flush.Left) == 0 {
		c.finish(c.Flush)
	}
}

// waitsFor reports whether a clearing waits for a session.
func (c *Copyset) waitsFor(cl *Clearing, id api.SessionID) bool {
	if cl.Left != nil {
		return cl.Left[id]
	}
	return !cl.IsDone() && id != cl.By && c.Copies[cl.Name][id] != nil
}

// SlowOf yields the sessions of one clearing. They may acknowledge meanwhile.
func (c *Copyset) SlowOf(cl *Clearing) iter.Seq[api.SessionID] {
	return func(yield func(api.SessionID) bool) {
		for id := range cl.Left {
			if !yield(id) {
				return
			}
		}
		for id := range c.Copies[cl.Name] {
			if cl.Left == nil && c.waitsFor(cl, id) && !yield(id) {
				return
			}
		}
	}
}

// Asked returns how long a change has waited for a session: since the first event about a name it still has.
// A takeover counts from its start.
func (c *Copyset) Asked(ch *Change, id api.SessionID, now session.Instant) time.Duration {
	since := now
	for _, cl := range ch.Clearings {
		if one := c.Copies[cl.Name][id]; cl.Left[id] {
			since = min(since, cl.Since)
		} else if cl.Left == nil && one != nil && one.Sequence > 0 {
			since = min(since, one.Posted)
		}
	}
	return now.Sub(since)
}

// Left returns the rest of a session's cache lease.
func (c *Copyset) Left(id api.SessionID, now session.Instant) time.Duration {
	if until, ok := c.Until[id]; ok {
		return max(until.Sub(now), 0)
	}
	return 0
}

// AwaitLapse lets a clearing wait for a leased copy only until its lease expires: without the drop it is not
// renewed.
func (c *Copyset) AwaitLapse(cl *Clearing, one *CachedCopy, until, now session.Instant) {
	if !one.Leased {
		return
	}
	left := max(until.Sub(now), 0)
	//mutant: if left >= 0 {
	if left == 0 {
		c.Release(one)
		return
	}
	if at, ok := c.Lapses.At(cl); !ok || at < now.Add(left) {
		c.Lapses.Put(cl, now.Add(left))
	}
}
