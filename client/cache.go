package client

import (
	"bytes"
	"container/list"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// cache keeps what the session has read (Chubby §2.7): contents and metadata of nodes, their absence,
// listings, and idle handles. Its data is true while both leases run, the session's and the cache lease: the
// master makes no change before this client has dropped its copy, or a lease has run out. So callers read the
// clock first.
//
// Its rules:
//
//   - It drops data that the master invalidates before the next KeepAlive acknowledges that, and does not
//     cache a pending read of it (fetch).
//   - It drops everything when the epoch changes, as one master's data is invalid under the next, and when
//     the lease of the session runs out. After a cache lease, the data stays for the next one, which the
//     master grants only after the client has dropped changed data.
//   - A change by this client disables its data from before the call until the answer; the master sends no
//     invalidation for it.
//
// The size stays below limit: the least recently used entries go first. The master does not hear of that, and
// may invalidate absent data.
type cache struct {
	limit int // bytes, as entry.size estimates; 0 disables the cache

	mu            sync.Mutex // guards what follows; take no mutex under it
	epoch         api.Epoch
	lease         cacheLease
	entries       map[api.Name]*entry
	used          *list.List // of *entry, the most recently used first
	bytes         int
	fetches       map[*fetch]struct{}
	changing      map[api.Name]int // pending changes by this client that touch the name
	rightsChanges uint64           // counts ACL changes, which may change the rights of handles
	idleCount     int              // in all entries
	stats         CacheStats
}

// CacheStats counts the outcomes of reads.
type CacheStats struct {
	Hits          uint64 // answered without a call
	Misses        uint64 // calls, because nothing was cached
	Invalidations uint64 // names invalidated by the cell
	Flushes       uint64 // times that the client dropped everything: fail-overs and jeopardy
	Entries       int    // names with cached data
	Bytes         int
}

type entry struct {
	name           api.Name
	element        *list.Element
	absentError    *api.Error // the NotFound of an absent node; else nil
	stat           *api.Stat  // without the lock's generation
	contents       []byte     // if hasContents
	hasContents    bool
	children       []api.Stat     // of listedInstance
	listedInstance api.Generation // 0 without a listing
	idle           map[openKey][]idleHandle
	readable       uint64 // cache.rightsChanges plus one when an Open to read was granted; 0 without any
	size           int
	removed        bool // from the cache
}

// clearReads drops the reads, but keeps the idle handles.
func (e *entry) clearReads() {
	e.absentError, e.stat, e.contents, e.hasContents, e.children, e.listedInstance = nil, nil, nil, false, nil, 0
}

const (
	entryBytes     = 512 // estimate, besides contents
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

func (c *cache) enabled() bool { return c.limit > 0 }

// lookup returns the usable entry of a name, or nil; mu is held.
func (c *cache) lookup(name api.Name) *entry {
	e := c.entries[name]
	if e == nil || c.changing[name] > 0 {
		return nil
	}
	return e
}

// statOf returns the metadata of an instance, or, if instance is 0, of the node of that name that may be
// read, as do contentsOf and childrenOf.
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

// contentsOf returns contents and metadata; see statOf. The caller may change the contents.
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

// answers reports whether the cached instance has answers a read of the instance of. 0 is a read by name: it
// needs a granted handle to read, without an ACL change since; cache.mu is held.
func answers(c *cache, e *entry, has, of api.Generation) bool {
	if of != 0 {
		return has == of
	}
	return e.readable == c.rightsChanges+1 && c.changing[api.ACLDir] == 0
}

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

// store caches the result of a read, unless it was spoiled or of another epoch. It returns the entry, or nil,
// and displaced idle handles for the caller to close.
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

// account updates the size of an entry, and of the cache; mu is held.
func (c *cache) account(e *entry) {
	c.bytes -= e.size
	e.size = entryBytes*(1+len(e.children)) + len(e.contents)
	c.bytes += e.size
}

// remove removes an entry, and returns its idle handles for the caller to close; mu is held.
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

func (c *cache) currentStats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Bytes = len(c.entries), c.bytes
	return s
}
