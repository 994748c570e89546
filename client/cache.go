package client

import (
	"bytes"
	"container/list"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// cache keeps what the session has read (Chubby §2.7): contents and metadata of
// nodes, their absence, listings, and idle handles. What it holds is true while the
// leases run, that of the session and the cache lease, because the master makes no
// change before this client has dropped what the change touches, or one of them has run
// out. So callers read the clock before they look into it.
//
// It keeps these rules:
//
//   - What the master invalidates is dropped, and a read of it that is in flight is
//     not cached (fetch), before the next KeepAlive acknowledges the invalidation.
//   - What one master said does not hold under the next: everything is dropped when
//     the epoch changes, and when the lease of the session runs out. When a cache lease
//     runs out nothing is dropped: it may be used again under the next, which the master
//     does not grant before what has changed meanwhile was dropped.
//   - A change by this client makes unusable what it touches, from before it is sent
//     until it is answered; the master does not send an invalidation for it.
//
// The size stays below limit: entries that were used least recently go first. The
// master is not told of that, and may invalidate what is not here any more.
type cache struct {
	limit int // bytes, by the estimate of entry.size; 0 is no cache at all

	mu            sync.Mutex // guards what follows; no other mutex is taken while it is held
	epoch         api.Epoch
	lease         cacheLease
	entries       map[api.Name]*entry
	used          *list.List // of *entry, the most recently used first
	bytes         int
	fetches       map[*fetch]struct{}
	changing      map[api.Name]int // how many changes by this client that touch the name are in flight
	rightsChanges uint64           // counts changes of ACLs, which may have changed the rights of handles
	idleCount     int              // idle handles in all entries
	stats         CacheStats
}

// CacheStats counts what has become of reads.
type CacheStats struct {
	Hits          uint64 // answered without asking the cell
	Misses        uint64 // asked, because nothing was cached
	Invalidations uint64 // names that the cell has invalidated
	Flushes       uint64 // times that everything was dropped: fail-overs and jeopardy
	Entries       int    // names of which something is cached
	Bytes         int
}

// entry is what is cached of one name.
type entry struct {
	name           api.Name
	element        *list.Element
	absentError    *api.Error // the NotFound of a node that is known to be absent; else nil
	stat           *api.Stat  // without the lock's generation
	contents       []byte     // if hasContents
	hasContents    bool
	children       []api.Stat     // of listedInstance
	listedInstance api.Generation // 0 if there is no listing
	idle           map[openKey][]idleHandle
	readable       uint64 // one more than cache.rightsChanges when an Open to read was granted; 0 if none was
	size           int
	removed        bool // from the cache
}

// clearReads drops what was read, and leaves the idle handles.
func (e *entry) clearReads() {
	e.absentError, e.stat, e.contents, e.hasContents, e.children, e.listedInstance = nil, nil, nil, false, nil, 0
}

const (
	entryBytes     = 512 // about what an entry takes besides its contents
	maxIdleHandles = 64
)

func newCache(limit int, epoch api.Epoch) *cache {
	return &cache{
		limit:    limit,
		lease:    cacheLease{wake: make(chan struct{}, 1)},
		epoch:    epoch,
		entries:  map[api.Name]*entry{},
		used:     list.New(),
		fetches:  map[*fetch]struct{}{},
		changing: map[api.Name]int{},
	}
}

// enabled reports whether anything is cached at all.
func (c *cache) enabled() bool { return c.limit > 0 }

// lookup returns the entry of a name, nil if there is none that may be used; mu is
// held.
func (c *cache) lookup(name api.Name) *entry {
	e := c.entries[name]
	if e == nil || c.changing[name] > 0 {
		return nil
	}
	return e
}

// statOf returns the metadata of an instance, or, if instance is 0, of whatever node has that
// name and may be opened to read.
func (c *cache) statOf(now session.Instant, name api.Name, instance api.Generation) (stat api.Stat, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.lookup(name); e != nil && e.stat != nil && (e.stat.Instance == instance || instance == 0 && answers(c, e, e.stat.Instance, 0)) {
		if is = c.use(e, now); is == foundUsable {
			stat = *e.stat
		}
	}
	return stat, is
}

// contentsOf returns the contents and metadata of an instance, or, if instance is 0, of
// whatever node has that name and may be opened to read. The caller may change the
// contents.
func (c *cache) contentsOf(now session.Instant, name api.Name, instance api.Generation) (contents []byte, stat api.Stat, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.lookup(name); e != nil && e.hasContents && answers(c, e, e.stat.Instance, instance) {
		if is = c.use(e, now); is == foundUsable {
			contents, stat = bytes.Clone(e.contents), *e.stat
		}
	}
	return contents, stat, is
}

// answers reports whether what is cached of the instance has answers a read of the
// instance of; 0 stands for a read by the name of the node, without a handle: then a
// handle to read must have been granted, and no ACL have changed since, as for another
// use of an idle handle; cache.mu is held.
func answers(c *cache, e *entry, has, of api.Generation) bool {
	if of != 0 {
		return has == of
	}
	return e.readable == c.rightsChanges+1 && c.changing[api.ACLDir] == 0
}

// childrenOf returns the listing of an instance of a directory, or, if instance is 0, of
// whatever directory has that name and may be opened to read.
func (c *cache) childrenOf(now session.Instant, name api.Name, instance api.Generation) (children []api.Stat, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.lookup(name); e != nil && e.listedInstance != 0 && answers(c, e, e.listedInstance, instance) {
		if is = c.use(e, now); is == foundUsable {
			children = slices.Clone(e.children)
		}
	}
	return children, is
}

// absentErrorOf returns the error for a name that is known to be absent.
func (c *cache) absentErrorOf(now session.Instant, name api.Name) (absent *api.Error, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.lookup(name); e != nil && e.absentError != nil {
		if is = c.use(e, now); is == foundUsable {
			absent = e.absentError
		}
	}
	return absent, is
}

// store caches what a read brought, unless the read was spoiled or the master of
// another epoch has answered it. It returns the entry, nil if nothing was cached, and
// idle handles that lost their place and are to be closed.
func (c *cache) store(f *fetch, epoch api.Epoch, set func(*entry)) (kept *entry, closing []idleHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.spoiled || epoch != c.epoch || !c.enabled() {
		return nil, nil
	}
	e := c.entries[f.name]
	if e == nil {
		e = &entry{name: f.name}
		e.element = c.used.PushFront(e)
		c.entries[f.name] = e
	}
	set(e)
	c.account(e)
	for c.bytes > c.limit && c.used.Len() > 0 {
		closing = append(closing, c.remove(c.used.Back().Value.(*entry))...)
	}
	if e.removed {
		return nil, closing
	}
	return e, closing
}

// account brings the size of an entry, and of the cache, up to date; mu is held.
func (c *cache) account(e *entry) {
	c.bytes -= e.size
	e.size = entryBytes*(1+len(e.children)) + len(e.contents)
	c.bytes += e.size
}

// remove removes an entry, and returns its idle handles, which are to be closed; mu
// is held.
func (c *cache) remove(e *entry) (closing []idleHandle) {
	e.removed = true
	delete(c.entries, e.name)
	c.used.Remove(e.element)
	c.bytes -= e.size
	for _, list := range e.idle {
		closing = append(closing, list...)
	}
	c.idleCount -= len(closing)
	return closing
}

// currentStats returns the current counts.
func (c *cache) currentStats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Bytes = len(c.entries), c.bytes
	return s
}
