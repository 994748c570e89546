package client

import (
	"container/list"
	"errors"
	"sync"
	"time"

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
	limit   int              // bytes, as entry.size estimates; 0 disables the cache
	discard func(idleHandle) // called with mu held for an idle handle that is to be closed

	mu            sync.Mutex // guards what follows; janitor.mu may be taken under it, by discard
	epoch         api.Epoch
	lease         cacheLease
	entries       map[api.Name]*entry
	used          *list.List // of *entry, the most recently used first
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
		discard:  func(idleHandle) {},
		lease:    cacheLease{wake: make(chan struct{}, 1), asked: make(chan struct{})},
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

// wanted is a part of an entry.
type wanted uint8

const (
	wantStat     wanted = 1
	wantContents wanted = 2 // with the metadata
	wantChildren wanted = 3
)

// instanceOf returns the instance whose part the entry has; 0 without that part.
func (e *entry) instanceOf(what wanted) api.Generation {
	switch {
	case what == wantChildren:
		return e.listedInstance
	case e.stat == nil, what == wantContents && !e.hasContents:
		return 0
	}
	return e.stat.Instance
}

// read returns an entry with a part of an instance. Instance 0 is a read by name: it needs a granted handle to
// read, without an ACL change since. The caller copies what others may change.
func (c *cache) read(now session.Instant, name api.Name, instance api.Generation, what wanted) (kept entry, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.lookup(name)
	if e == nil {
		return entry{}, foundNothing
	}
	has, byName := e.instanceOf(what), e.readable == c.rightsChanges+1 && c.changing[api.ACLDir] == 0
	if has == 0 || instance == 0 && !byName || instance != 0 && instance != has {
		return entry{}, foundNothing
	}
	return *e, c.use(e, now)
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

// store caches the result of a read, unless it was spoiled or of another epoch. It returns the entry, or nil.
func (c *cache) store(f *fetch, epoch api.Epoch, set func(*entry)) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.spoiled || epoch != c.epoch || !c.enabled() {
		return nil
	}
	e := c.entries[f.name]
	if e == nil {
		e = &entry{name: f.name}
		e.element = c.used.PushFront(e)
		c.entries[f.name] = e
	}
	set(e)
	c.account(e)
	for c.stats.Bytes > c.limit && c.used.Len() > 0 {
		c.remove(c.used.Back().Value.(*entry))
	}
	if e.removed {
		return nil
	}
	return e
}

func (c *cache) storeAbsence(f *fetch, epoch api.Epoch, err error) {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.NotFound && e.Cacheable {
		c.store(f, epoch, func(kept *entry) { kept.clearReads(); kept.absentError, kept.readable = e, 0 })
	}
}

// account updates the size of an entry, and of the cache; mu is held.
func (c *cache) account(e *entry) {
	c.stats.Bytes -= e.size
	e.size = entryBytes*(1+len(e.children)) + len(e.contents)
	c.stats.Bytes += e.size
}

// remove removes an entry, with its idle handles; mu is held.
func (c *cache) remove(e *entry) {
	e.removed = true
	delete(c.entries, e.name)
	c.used.Remove(e.element)
	c.stats.Bytes -= e.size
	c.discardIdle(e)
}

// discardIdle closes the idle handles of an entry, and returns their number; mu is held.
func (c *cache) discardIdle(e *entry) (n int) {
	for _, list := range e.idle {
		for _, one := range list {
			c.discard(one)
			n++
		}
	}
	clear(e.idle)
	c.idleCount -= n
	return n
}

func (c *cache) currentStats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries = len(c.entries)
	return s
}

// cacheLease is the lease under which a cache is used. cache.mu guards what changes.
type cacheLease struct {
	required bool            // false: an older cell grants none, and waits for the session's lease; constant
	wake     chan struct{}   // capacity 1: wakes renewCacheLeases; constant
	end      session.Instant // in the epoch of the cache
	asked    chan struct{}   // closed and replaced after each attempt to renew it
	pause    session.Instant // until then no call waits for a lease
}

type finding uint8

const (
	foundNothing finding = 0
	foundLapsed  finding = 1 // an answer, but no lease to use it under
	foundUsable  finding = 2
)

// use says whether an entry is usable at now, and counts that; mu is held.
func (c *cache) use(e *entry, now session.Instant) finding {
	//mutant: if c.lease.required && c.lease.end == 0 {
	if c.lease.required && now >= c.lease.end {
		return foundLapsed
	}
	c.used.MoveToFront(e.element)
	c.stats.Hits++
	if c.lease.required && c.lease.end.Sub(now) < renewBefore {
		wakeUp(c.lease.wake)
	}
	return foundUsable
}

// openKey is what a handle is opened for: two calls of Open must have it in common to share a handle.
type openKey struct {
	read, write, changeACL, noCache, cacheLock bool
	watches, watchesConflicts                  bool // for events; and for EventConflictingLock
	create                                     Creation
	kind                                       api.Kind
	delay                                      time.Duration
}

// isShared reports whether others may get the handle. None shares one with events, CacheLock or NoCache, or of an
// Open that requires an absent node.
func (k openKey) isShared() bool {
	return !k.watches && !k.cacheLock && !k.noCache && k.create <= Directory
}

// idleHandle is a handle that its owner has closed, still open at the cell.
type idleHandle struct {
	token         []byte
	id            api.HandleID
	instance      api.Generation
	rightsChanges uint64    // of the cache when the handle was opened
	epoch         api.Epoch // of the session when the handle was closed: of the master with the open handle
}

// discardAllIdle closes all idle handles, which count against the principal's quota, and reports whether there
// were any.
func (c *cache) discardAllIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.entries {
		n += c.discardIdle(e)
	}
	return n > 0
}

// park keeps an idle handle with the entry e, which its Open has filled, and reports whether it does. It does
// not if rights may have changed since, or if the cache knows of a later epoch, whose master lacks the
// handle.
func (c *cache) park(e *entry, key openKey, one idleHandle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e == nil || e.removed || one.rightsChanges != c.rightsChanges || one.epoch != c.epoch || c.idleCount >= maxIdleHandles {
		return false
	}
	if e.idle == nil {
		e.idle = map[openKey][]idleHandle{}
	}
	e.idle[key] = append(e.idle[key], one)
	c.idleCount++
	return true
}

// takeIdle takes out an idle handle for an Open with that key, or nil. It finds none while this client is
// changing an ACL: the Open might be refused. It closes those that rights changes have made useless.
func (c *cache) takeIdle(now session.Instant, name api.Name, key openKey) (e *entry, idle *idleHandle, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.lookup(name); e == nil || c.changing[api.ACLDir] > 0 {
		return nil, nil, foundNothing
	}
	for list := e.idle[key]; len(list) > 0; list = e.idle[key] {
		one := list[len(list)-1]
		good := one.rightsChanges == c.rightsChanges
		if good && c.use(e, now) == foundLapsed {
			return nil, nil, foundLapsed
		}
		e.idle[key] = list[:len(list)-1]
		c.idleCount--
		if good {
			if key.read {
				e.readable = one.rightsChanges + 1
			}
			return e, &one, foundUsable
		}
		c.discard(one)
	}
	return nil, nil, foundNothing
}
