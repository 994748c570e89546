package cell

import (
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
	changing map[api.Name]int                       // how many changes of a name are under way
	flush    *change                                // what every change waits for after a takeover; nil when it is over
}

// copied is what a session may have of a name.
type copied struct {
	name     api.Name
	session  api.SessionID
	sequence uint64          // of the event that invalidates it; 0 if none was posted
	posted   session.Instant // that event
	waiting  []*change       // that wait for its acknowledgement
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
	}
}

// maxCopies bounds the names that one session may have in its cache.
const maxCopies = 16_384

// register takes note that a session is about to read something of a name, and
// reports whether it may keep it.
func (c *caches) register(id api.SessionID, name api.Name) bool {
	if c.changing[name] > 0 {
		return false
	}
	if one := c.names[id][name]; one != nil {
		return one.sequence == 0
	}
	if len(c.names[id]) >= maxCopies {
		return false
	}
	if c.names[id] == nil {
		c.names[id] = map[api.Name]*copied{}
	}
	if c.copies[name] == nil {
		c.copies[name] = map[api.SessionID]*copied{}
	}
	one := &copied{name: name, session: id}
	c.names[id][name], c.copies[name][id] = one, one
	return true
}

// forget drops what a session has of a name, and lets go the changes that wait
// for it.
func (c *caches) forget(one *copied) {
	for _, waits := range one.waiting {
		waits.heard(one.session)
	}
	delete(c.names[one.session], one.name)
	if len(c.names[one.session]) == 0 {
		delete(c.names, one.session)
	}
	delete(c.copies[one.name], one.session)
	if len(c.copies[one.name]) == 0 {
		delete(c.copies, one.name)
	}
}

// acknowledge takes note that a session has received the events up to that
// sequence, and so has dropped what they told it to.
func (c *caches) acknowledge(id api.SessionID, sequence uint64) {
	told := c.told[id]
	for len(told) > 0 && told[0].sequence <= sequence {
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
}

// drop forgets a session that has ended: its lease is over.
func (c *caches) drop(id api.SessionID) {
	for _, one := range c.names[id] {
		c.forget(one)
	}
	delete(c.told, id)
	if c.flush != nil {
		c.flush.heard(id)
	}
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
// held.
func (m *master) begin(by api.SessionID, names []api.Name) *change {
	ch := newChange(m.clock(), names...)
	since := ch.since
	for _, name := range names {
		m.caches.changing[name]++
		for id, one := range m.caches.copies[name] {
			if id == by {
				continue
			}
			box := m.boxes[id]
			if box == nil {
				m.caches.forget(one)
				continue
			}
			if one.sequence == 0 {
				one.posted = ch.since
				one.sequence = box.post(&pb.Event{Kind: pb.EventKind_EVENT_KIND_CACHE_INVALIDATION, Path: m.path(name)})
				m.caches.told[id] = append(m.caches.told[id], one)
				m.metrics.invalidations.Inc()
			}
			since = min(since, one.posted)
			one.waiting = append(one.waiting, ch)
			ch.left[id]++
		}
	}
	ch.since = since
	ch.settle()
	return ch
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

// end lets names be cached again, once a change has taken effect or never will.
func (m *master) end(ch *change) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	if s, ok := m.state().Sessions.Get(id); !ok || !s.MayCache {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leases.Alive(id) {
		return false
	}
	all := true
	for _, name := range names {
		all = m.caches.register(id, name) && all
	}
	return all
}

// slowChange is how long a change may wait for somebody's cache before that is
// worth a line in the log.
const slowChange = time.Second
