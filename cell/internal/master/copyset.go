package master

import (
	"container/list"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// copyset knows which sessions may cache which names (Chubby §2.7), and which changes wait for them. It goes
// by name, because clients also cache the absence of a node. One invalidation drops all of a name: contents,
// metadata, absence, the list of its children.
//
// The rule: while a session may have a copy of a name, and its lease runs, no change of that name takes
// effect. The lease is the cache lease (renewCache), or else the session's. register enters a copy before
// the read, and never during a change: the node is uncacheable then, so readers never wait and one round of
// acknowledgements is enough.
//
// epoch.mu guards it.
type copyset struct {
	copies   map[api.Name]map[api.SessionID]*cachedCopy
	names    map[api.SessionID]map[api.Name]*cachedCopy // the same, by session
	told     map[api.SessionID][]*cachedCopy            // pending invalidations, in order
	order    map[api.SessionID]*list.List               // of *cachedCopy without invalidation, least recently used first
	bytes    map[api.SessionID]int                      // size of its copies here
	used     tally                                      // the same, by principal
	changing map[api.Name]int                           // number of changes of a name under way
	flush    *clearing                                  // what changes wait for after a takeover, or nil
	until    map[api.SessionID]session.Instant          // ends of granted cache leases
	lapses   session.Timetable[*clearing]               // ends of the cache leases that clearings wait for

	clearings map[api.Name]*clearing // those that changes wait for
}

// cachedCopy is what a session may have of a name.
type cachedCopy struct {
	name      api.Name
	session   api.SessionID
	principal string
	leased    bool            // used only under cache leases
	place     *list.Element   // in order
	sequence  uint64          // of its invalidation; 0 without one
	posted    session.Instant // when that was posted
	entered   session.Instant // when it was entered
}

func newCopyset() *copyset {
	return &copyset{
		copies: map[api.Name]map[api.SessionID]*cachedCopy{}, names: map[api.SessionID]map[api.Name]*cachedCopy{},
		told: map[api.SessionID][]*cachedCopy{}, changing: map[api.Name]int{},
		order: map[api.SessionID]*list.List{}, bytes: map[api.SessionID]int{}, used: newTally(),
		clearings: map[api.Name]*clearing{}, until: map[api.SessionID]session.Instant{},
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

	maxCopies = maxSessionCopiesUntold / copyBytes // of one session
)

func (one *cachedCopy) size() int { return copyBytes + len(one.name) }

// register enters a session that is about to read a name, and reports whether it may keep the result. leased
// says that it uses the copy only under cache leases.
func (c *copyset) register(id api.SessionID, principal string, name api.Name, leased bool, now session.Instant) bool {
	if c.isChanging(name) {
		return false
	}
	if one := c.names[id][name]; one != nil {
		if one.sequence == 0 {
			c.order[id].MoveToBack(one.place)
		}
		return one.sequence == 0
	}
	if c.bytes[id] >= maxSessionCopiesUntold || c.used.of[principal] >= maxPrincipalCopies {
		return false
	}
	if c.names[id] == nil {
		c.names[id], c.order[id] = map[api.Name]*cachedCopy{}, list.New()
	}
	if c.copies[name] == nil {
		c.copies[name] = map[api.SessionID]*cachedCopy{}
	}
	one := &cachedCopy{name: name, session: id, principal: principal, leased: leased, entered: now}
	one.place = c.order[id].PushBack(one)
	c.names[id][name], c.copies[name][id] = one, one
	c.bytes[id] += one.size()
	c.used.add(principal, one.size())
	return true
}

// isChanging reports whether a change of a name is under way. A change of their directory counts for all
// access control lists: a write of the list of operators closes all of them when applied
// (raftfsm.State.TouchedBeside), also later ones.
func (c *copyset) isChanging(name api.Name) bool {
	return c.changing[name] > 0 || name.Parent() == api.ACLDir && c.changing[api.ACLDir] > 0
}

// surplus returns the copies that a session has to drop for room: a sixteenth, and none while invalidations
// are pending.
func (c *copyset) surplus(id api.SessionID, principal string) (drop []*cachedCopy) {
	if c.bytes[id] < maxSessionCopies && c.used.of[principal] < maxPrincipalCopies || len(c.told[id]) > 0 || c.order[id] == nil {
		return nil
	}
	bytes := 0
	for e := c.order[id].Front(); e != nil && bytes <= c.bytes[id]/16; e = e.Next() {
		one := e.Value.(*cachedCopy)
		drop, bytes = append(drop, one), bytes+one.size()
	}
	return drop
}

// forgetOwn drops a session's copy of a node that it deleted: its client keeps nothing of it. Not when the
// change begins: a late copy of the request would begin it again, when the client may have read the name
// anew.
func (c *copyset) forgetOwn(id api.SessionID, name api.Name) {
	if one := c.names[id][name]; one != nil && one.sequence == 0 {
		c.forget(one)
	}
}

// forget drops a copy.
func (c *copyset) forget(one *cachedCopy) {
	if c.names[one.session][one.name] != one {
		return
	}
	delete(c.names[one.session], one.name)
	c.order[one.session].Remove(one.place)
	c.bytes[one.session] -= one.size()
	if len(c.names[one.session]) == 0 {
		delete(c.names, one.session)
		delete(c.order, one.session)
		delete(c.bytes, one.session)
	}
	c.used.add(one.principal, -one.size())
	c.release(one)
}

// release drops a copy, and ends a clearing that waited only for it.
func (c *copyset) release(one *cachedCopy) {
	if c.copies[one.name][one.session] != one {
		return
	}
	delete(c.copies[one.name], one.session)
	if len(c.copies[one.name]) == 0 {
		delete(c.copies, one.name)
	}
	if cl := c.clearings[one.name]; cl != nil && !c.cachedBeside(cl.by, one.name) {
		delete(c.clearings, one.name)
		c.finish(cl)
	}
}

// acknowledge records the events that a session has received, and forgets the copies they invalidated: at
// most most. It reports whether that was all.
func (c *copyset) acknowledge(id api.SessionID, sequence uint64, most int) (done bool) {
	told := c.told[id]
	for len(told) > 0 && told[0].sequence <= sequence {
		if most--; most < 0 {
			c.told[id] = told
			return false
		}
		c.forget(told[0])
		told = told[1:]
	}
	if len(told) == 0 {
		delete(c.told, id)
	} else {
		c.told[id] = told
	}
	if sequence > 0 { // the first event of an epoch is that of the fail-over
		c.flushed(id)
	}
	return true
}

// drop forgets at most most copies of an ended session. It reports whether that was all.
func (c *copyset) drop(id api.SessionID, most int) (done bool) {
	for _, one := range c.names[id] {
		if most--; most < 0 {
			return false
		}
		c.forget(one)
	}
	delete(c.told, id)
	delete(c.until, id)
	c.flushed(id)
	return true
}
