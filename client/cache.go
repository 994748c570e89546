package client

import (
	"bytes"
	"container/list"
	"slices"
	"sync"

	"github.com/chubbylock/chubby/api"
)

// cache keeps what the session has read (Chubby §2.7): contents and metadata of
// nodes, their absence, listings, and handles that may be used again. What it
// holds is true while the lease runs, because the master makes no change before
// this client has dropped what the change touches, or its lease is over. So
// whoever takes something out looks at the clock first, and then here.
//
// The rules it upholds:
//
//   - What is told to be dropped is dropped, and a read of it that is under way is
//     kept by nobody (fetch), before the next KeepAlive acknowledges.
//   - What one master told says nothing under the next: everything goes with an
//     epoch, and with the lease.
//   - A change of this client's own puts aside what it touches from before it is
//     sent until it is answered; the master does not ask for that.
//
// It stays below its limit: what was used longest ago goes first. It is not told
// to the master, who may then ask for what is not here any more.
type cache struct {
	limit int // bytes, by the estimate of entry.size; 0 is no cache at all

	mu       sync.Mutex // guards what follows; sessionState.mu may be held when it is taken
	epoch    api.Epoch
	entries  map[api.Name]*entry
	used     *list.List // of *entry, the newest use first
	bytes    int
	fetches  map[*fetch]struct{}
	changing map[api.Name]int // this client's own changes under way
	rights   uint64           // counts what may have changed the rights of handles
	idle     int              // handles kept for another Open
	stats    CacheStats
}

// CacheStats counts what became of reads.
type CacheStats struct {
	Hits          uint64 // answered without asking the cell
	Misses        uint64 // asked, because nothing was cached
	Invalidations uint64 // names that the cell had dropped
	Flushes       uint64 // times that everything was dropped: fail-overs and jeopardy
	Entries       int    // names that something is cached of
	Bytes         int
}

// entry is what is kept of one name.
type entry struct {
	name     api.Name
	place    *list.Element
	absent   *api.Error // there is no such node
	stat     *api.Stat  // without the lock's generation
	contents []byte     // with whole
	whole    bool
	children []api.Stat     // of the instance listed
	listed   api.Generation // 0 if there is no listing
	handles  map[openKey][]spare
	size     int
	dropped  bool
}

// blank forgets what was read; handles are as good as before.
func (e *entry) blank() {
	e.absent, e.stat, e.contents, e.whole, e.children, e.listed = nil, nil, nil, false, nil, 0
}

const (
	entryBytes = 512 // that an entry takes, about, besides its contents
	mostSpare  = 64  // handles kept for another Open
)

func newCache(limit int, epoch api.Epoch) *cache {
	return &cache{
		limit: limit, epoch: epoch, entries: map[api.Name]*entry{}, used: list.New(),
		fetches: map[*fetch]struct{}{}, changing: map[api.Name]int{},
	}
}

// on reports whether anything is cached at all.
func (c *cache) on() bool { return c.limit > 0 }

// find returns the entry of a name if it may be used; mu is held.
func (c *cache) find(name api.Name) *entry {
	e := c.entries[name]
	if e == nil || c.changing[name] > 0 {
		return nil
	}
	return e
}

// hit counts a read that was answered.
func (c *cache) hit(e *entry) {
	c.used.MoveToFront(e.place)
	c.stats.Hits++
}

// statOf returns the metadata of an instance.
func (c *cache) statOf(name api.Name, instance api.Generation) (api.Stat, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.find(name); e != nil && e.stat != nil && e.stat.Instance == instance {
		c.hit(e)
		return *e.stat, true
	}
	return api.Stat{}, false
}

// contentsOf returns the contents and metadata of an instance. The contents are
// the caller's.
func (c *cache) contentsOf(name api.Name, instance api.Generation) ([]byte, api.Stat, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.find(name); e != nil && e.whole && e.stat.Instance == instance {
		c.hit(e)
		return bytes.Clone(e.contents), *e.stat, true
	}
	return nil, api.Stat{}, false
}

// childrenOf returns the listing of an instance of a directory.
func (c *cache) childrenOf(name api.Name, instance api.Generation) ([]api.Stat, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.find(name); e != nil && e.listed != 0 && e.listed == instance {
		c.hit(e)
		return slices.Clone(e.children), true
	}
	return nil, false
}

// absence returns the error of a name that is known to be absent.
func (c *cache) absence(name api.Name) *api.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.find(name); e != nil && e.absent != nil {
		c.hit(e)
		return e.absent
	}
	return nil
}

// keep keeps what a read brought, unless it was spoiled or another master has
// answered it. It returns the entry, nil if nothing was kept, and the handles to
// be closed for want of room.
func (c *cache) keep(f *fetch, epoch api.Epoch, set func(*entry)) (kept *entry, closing []spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.spoiled || epoch != c.epoch || !c.on() {
		return nil, nil
	}
	e := c.entries[f.name]
	if e == nil {
		e = &entry{name: f.name}
		e.place = c.used.PushFront(e)
		c.entries[f.name] = e
	}
	set(e)
	c.weigh(e)
	for c.bytes > c.limit && c.used.Len() > 0 {
		closing = append(closing, c.drop(c.used.Back().Value.(*entry))...)
	}
	if e.dropped {
		return nil, closing
	}
	return e, closing
}

// weigh counts an entry as large as it is now; mu is held.
func (c *cache) weigh(e *entry) {
	c.bytes -= e.size
	e.size = entryBytes*(1+len(e.children)) + len(e.contents)
	c.bytes += e.size
}

// drop forgets an entry, and returns the handles that were kept with it; mu is
// held.
func (c *cache) drop(e *entry) (closing []spare) {
	e.dropped = true
	delete(c.entries, e.name)
	c.used.Remove(e.place)
	c.bytes -= e.size
	for _, list := range e.handles {
		closing = append(closing, list...)
	}
	c.idle -= len(closing)
	return closing
}

const (
	unchanged effect = 0
	written   effect = 1 // contents are others: handles are as good as before
	changed   effect = 2 // anything may be
)

// count returns the numbers of now.
func (c *cache) count() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Bytes = len(c.entries), c.bytes
	return s
}
