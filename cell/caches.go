package cell

import (
	"container/list"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// caches knows which sessions may have which names in their caches (Chubby
// §2.7), and which changes wait for them. What is cached goes by name, because
// the absence of a node is cached too: everything a client may keep of a name,
// contents, metadata, absence, the list of its children, goes with one
// invalidation.
//
// The rule it upholds: while a session may have something of a name, and its
// lease runs, no change of that name takes effect. A copy is entered before it is
// read (register), and none is entered while a change is under way (a node is
// uncacheable meanwhile, so that readers never wait and one round of
// acknowledgements is enough).
//
// master.mu guards it.
type caches struct {
	copies   map[api.Name]map[api.SessionID]*copied
	names    map[api.SessionID]map[api.Name]*copied // the same, by session
	told     map[api.SessionID][]*copied            // invalidations posted and not acknowledged, in their order
	order    map[api.SessionID]*list.List           // of *copied, those not told, by when they were last asked for
	bytes    map[api.SessionID]int                  // that its copies take here
	used     map[string]int                         // the same, by principal
	changing map[api.Name]int                       // how many changes of a name are under way
	flush    *change                                // what every change waits for after a takeover; nil when it is over
}

// copied is what a session may have of a name.
type copied struct {
	name      api.Name
	session   api.SessionID
	principal string
	place     *list.Element    // in order
	sequence  uint64           // of the event that invalidates it; 0 if none was posted
	posted    session.Instant  // that event
	waiting   map[*change]bool // that wait for its acknowledgement
}

// change is one change of what clients may have cached.
type change struct {
	names []api.Name
	since session.Instant       // the longest that any of those that it waits for was told
	left  map[api.SessionID]int // what is yet to be acknowledged, by session
	clear chan struct{}         // closed when nothing is
	next  func()                // called when clear is closed; may be nil
}

func newCaches() *caches {
	return &caches{
		copies: map[api.Name]map[api.SessionID]*copied{}, names: map[api.SessionID]map[api.Name]*copied{},
		told: map[api.SessionID][]*copied{}, changing: map[api.Name]int{},
		order: map[api.SessionID]*list.List{}, bytes: map[api.SessionID]int{}, used: map[string]int{},
	}
}

// What the master remembers of copies is bounded: copyBytes and the name for each.
// A session that reaches maxSessionCopies (some 15,000 names) is told to drop
// those that it asked for least recently, a part of them at a time, and goes on
// caching; until it has dropped them it may reach mostSessionCopies. A principal's
// sessions together have maxPrincipalCopies; past that, each makes room by its own
// copies, and one that has none caches nothing.
const (
	copyBytes          = 512
	maxSessionCopies   = 8 << 20
	mostSessionCopies  = maxSessionCopies + maxSessionCopies/16
	maxPrincipalCopies = 512 << 20

	maxCopies = mostSessionCopies / copyBytes // of one session
)

func (one *copied) size() int { return copyBytes + len(one.name) }

// register takes note that a session is about to read something of a name, and
// reports whether it may keep it.
func (c *caches) register(id api.SessionID, principal string, name api.Name) bool {
	if c.changing[name] > 0 {
		return false
	}
	if one := c.names[id][name]; one != nil {
		if one.sequence == 0 {
			c.order[id].MoveToBack(one.place)
		}
		return one.sequence == 0
	}
	if c.bytes[id] >= mostSessionCopies || c.used[principal] >= maxPrincipalCopies {
		return false
	}
	if c.names[id] == nil {
		c.names[id], c.order[id] = map[api.Name]*copied{}, list.New()
	}
	if c.copies[name] == nil {
		c.copies[name] = map[api.SessionID]*copied{}
	}
	one := &copied{name: name, session: id, principal: principal}
	one.place = c.order[id].PushBack(one)
	c.names[id][name], c.copies[name][id] = one, one
	c.bytes[id] += one.size()
	c.used[principal] += one.size()
	return true
}

// surplus returns what a session is to drop to make room for more: a sixteenth of
// what it has, and nothing while it still has to drop something.
func (c *caches) surplus(id api.SessionID, principal string) (drop []*copied) {
	if c.bytes[id] < maxSessionCopies && c.used[principal] < maxPrincipalCopies || len(c.told[id]) > 0 || c.order[id] == nil {
		return nil
	}
	bytes := 0
	for e := c.order[id].Front(); e != nil && bytes <= c.bytes[id]/16; e = e.Next() {
		one := e.Value.(*copied)
		drop, bytes = append(drop, one), bytes+one.size()
	}
	return drop
}

// forgetOwn drops what a session has of a node that it has deleted itself: its
// client has put the name aside until it has the answer, and keeps nothing of it.
// (It may be forgotten now, and not when the change begins: a late copy of the
// request would begin it again, when the client may have read the name anew.)
func (c *caches) forgetOwn(id api.SessionID, name api.Name) {
	if one := c.names[id][name]; one != nil && one.sequence == 0 {
		c.forget(one)
	}
}

// forget drops what a session has of a name, and lets go the changes that wait
// for it.
func (c *caches) forget(one *copied) {
	for waits := range one.waiting {
		waits.heard(one.session)
	}
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
	if c.used[one.principal] -= one.size(); c.used[one.principal] == 0 {
		delete(c.used, one.principal)
	}
	delete(c.copies[one.name], one.session)
	if len(c.copies[one.name]) == 0 {
		delete(c.copies, one.name)
	}
}

// acknowledge takes note that a session has received the events up to that
// sequence, and so has dropped what they told it to: of at most most names at a time. It
// reports whether that was all.
func (c *caches) acknowledge(id api.SessionID, sequence uint64, most int) (done bool) {
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
	if c.flush != nil && sequence > 0 { // the first event of an epoch is that of the fail-over
		c.flush.heard(id)
	}
	return true
}

// drop forgets what a session that has ended may have, its lease being over: at most
// most names. It reports whether it knows of no more.
func (c *caches) drop(id api.SessionID, most int) (done bool) {
	for _, one := range c.names[id] {
		if most--; most < 0 {
			return false
		}
		c.forget(one)
	}
	delete(c.told, id)
	if c.flush != nil {
		c.flush.heard(id)
	}
	return true
}

// heard takes note that a session has acknowledged one of the things that a
// change waits for.
func (ch *change) heard(id api.SessionID) {
	n, ok := ch.left[id]
	if !ok {
		return
	}
	if n > 1 {
		ch.left[id] = n - 1
		return
	}
	delete(ch.left, id)
	ch.settle()
}

// asked returns for how long a change has waited for a session: since that was first
// told to drop one of the names that it has not dropped yet. (What every change waits
// for after a takeover has no names; everybody was told when it began.)
func (c *caches) asked(ch *change, id api.SessionID, now session.Instant) time.Duration {
	if len(ch.names) == 0 {
		return now.Sub(ch.since)
	}
	since := now
	for _, name := range ch.names {
		if one := c.names[id][name]; one != nil && one.sequence > 0 {
			since = min(since, one.posted)
		}
	}
	return now.Sub(since)
}

// newChange returns a change that waits for nothing yet.
func newChange(now session.Instant, names ...api.Name) *change {
	return &change{names: names, since: now, left: map[api.SessionID]int{}, clear: make(chan struct{})}
}

// settle ends the wait if nothing is left to wait for.
func (ch *change) settle() {
	if len(ch.left) > 0 {
		return
	}
	close(ch.clear)
	if ch.next != nil {
		ch.next()
	}
}

// then calls next when nothing is left to wait for: at once, if nothing is.
func (ch *change) then(next func()) {
	if len(ch.left) == 0 {
		next()
		return
	}
	ch.next = next
}

// begin makes names uncacheable and has every session drop what it has of them,
// but the one whose change it is: that dropped it itself before it asked. m.mu is
// held, and released in between: the names are uncacheable from the first hold on, so
// nobody is added to those that have to be told.
func (m *master) begin(by api.SessionID, names []api.Name) *change {
	ch := newChange(m.clock(), names...)
	since := ch.since
	for _, name := range names {
		m.caches.changing[name]++
	}
	ch.left[0]++ // nobody: it is not clear before all have been told
	for _, name := range names {
		for id, one := range m.caches.copies[name] {
			if id == by {
				continue
			}
			box := m.boxes[id]
			if box == nil {
				m.caches.forget(one)
				continue
			}
			m.invalidate(box, one, ch.since)
			since = min(since, one.posted)
			if one.waiting == nil {
				one.waiting = map[*change]bool{}
			}
			one.waiting[ch] = true
			ch.left[id]++
			m.mu.pause(1)
		}
	}
	ch.since = since
	delete(ch.left, 0)
	ch.settle()
	return ch
}

// invalidate tells a session to drop what it has of a name, unless it was told.
// m.mu is held.
func (m *master) invalidate(box *mailbox, one *copied, now session.Instant) {
	if one.sequence > 0 {
		return
	}
	one.posted = now
	one.sequence = box.post(&pb.Event{Kind: pb.EventKind_EVENT_KIND_CACHE_INVALIDATION, Path: m.path(one.name)})
	m.caches.order[one.session].Remove(one.place)
	m.caches.told[one.session] = append(m.caches.told[one.session], one)
	m.metrics.invalidations.Inc()
}

// expects reports whether a change of names will have to wait for anybody but the
// one whose change it is. m.mu is held.
func (m *master) expects(by api.SessionID, names []api.Name) bool {
	if m.caches.flush != nil && len(m.caches.flush.left) > 0 {
		return true
	}
	for _, name := range names {
		copies := m.caches.copies[name]
		if n := len(copies); n > 1 || n == 1 && copies[by] == nil {
			return true
		}
	}
	return false
}

// end lets names be cached again, once a change has taken effect or never will. One that
// was given up is forgotten by those that it waited for: they may be silent for two
// leases, and an author may begin very many.
func (m *master) end(ch *change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range ch.left {
		for _, name := range ch.names {
			if one := m.caches.copies[name][id]; one != nil {
				delete(one.waiting, ch)
			}
		}
		m.mu.pause(1)
	}
	for _, name := range ch.names {
		if m.caches.changing[name]--; m.caches.changing[name] == 0 {
			delete(m.caches.changing, name)
		}
	}
}

// flushCaches begins with what an earlier master knew and this one does not: every
// session that may cache may have anything in its cache, until it has
// acknowledged the fail-over or has ended (Chubby §2.9, step 6). Only changes
// wait for that (decision 12). m.mu is held.
func (m *master) flushCaches() {
	flush := newChange(m.clock())
	for s := range m.state().Sessions.All() {
		if s.MayCache {
			flush.left[s.ID] = 1
		}
	}
	if len(flush.left) > 0 {
		m.caches.flush = flush
	}
}

// remember enters a session as one that is about to read something of a name, if
// it caches at all.
func (m *master) remember(id api.SessionID, names ...api.Name) bool {
	s, ok := m.state().Sessions.Get(id)
	if !ok || !s.MayCache {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leases.Alive(id) {
		return false
	}
	all := true
	if box := m.boxes[id]; box != nil {
		now := m.clock()
		for _, one := range m.caches.surplus(id, s.Principal) {
			m.invalidate(box, one, now)
		}
	}
	for _, name := range names {
		all = m.caches.register(id, s.Principal, name) && all
	}
	return all
}

// slowChange is how long a change may wait for somebody's cache before that is
// worth a line in the log.
const slowChange = time.Second
