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

// openKey is what two Opens must agree in to share a handle.
type openKey struct {
	read, write, changeACL bool
	create                 Create
	kind                   api.Kind
	delay                  int64
}

// spare is a handle that was closed by its owner, and is open at the cell.
type spare struct {
	token    []byte
	id       api.HandleID
	instance api.Generation
	rights   uint64
	epoch    api.Epoch // that the session had heard of when it was closed: of the master that has it open
}

// fetch is a read that is under way. It is spoiled if what it brings may not be
// kept.
type fetch struct {
	name    api.Name
	rights  uint64
	spoiled bool
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

// begin takes note of a read that is about to be asked for.
func (c *cache) begin(name api.Name) *fetch {
	if !c.on() {
		return &fetch{spoiled: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Misses++
	f := &fetch{name: name, rights: c.rights, spoiled: c.changing[name] > 0}
	c.fetches[f] = struct{}{}
	return f
}

// done takes note that a read is over.
func (c *cache) done(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fetches, f)
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

// invalidate drops everything of a name, because the master says so.
func (c *cache) invalidate(name api.Name) (closing []spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Invalidations++
	return c.void(name)
}

// void drops a name, and spoils reads of it; mu is held.
func (c *cache) void(name api.Name) (closing []spare) {
	c.spoil(name)
	if e := c.entries[name]; e != nil {
		closing = c.drop(e)
	}
	return closing
}

// spoil sees to it that no read of a name that is under way is kept; mu is held.
func (c *cache) spoil(name api.Name) {
	if name == api.ACLDir { // clients that may open something are told when a list there changes
		c.rights++
	}
	for f := range c.fetches {
		if f.name == name {
			f.spoiled = true
		}
	}
}

// flush drops everything, and takes what masters of that epoch say from now on.
// It returns the handles that were kept and are open at the cell still: a new
// master does not know them, but the present one does, whatever has become of the
// lease.
func (c *cache) flush(epoch api.Epoch) (closing []spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.dropped = true
		if epoch > c.epoch {
			continue
		}
		for _, list := range e.handles {
			closing = append(closing, list...)
		}
	}
	for f := range c.fetches {
		f.spoiled = true
	}
	clear(c.entries)
	c.used.Init()
	c.epoch, c.bytes, c.idle = max(c.epoch, epoch), 0, 0
	c.stats.Flushes++
	return closing
}

// spares takes out all handles that are kept.
func (c *cache) spares() (closing []spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		for _, list := range e.handles {
			closing = append(closing, list...)
		}
		clear(e.handles)
	}
	c.idle = 0
	return closing
}

// suspend puts aside what a change of this client's own is about to touch.
// A read that is part of the change is not spoiled by it: what it brings is kept
// if the change turns out to be none.
func (c *cache) suspend(names []api.Name, part *fetch) {
	if !c.on() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	spoiled := part != nil && part.spoiled
	for _, name := range names {
		c.changing[name]++
		c.spoil(name)
	}
	if part != nil {
		part.spoiled = spoiled
	}
}

// effect is what a change of this client's own has done to the nodes it touches.
type effect uint8

const (
	unchanged effect = 0
	written   effect = 1 // contents are others: handles are as good as before
	changed   effect = 2 // anything may be
)

// resume ends what suspend began.
func (c *cache) resume(names []api.Name, did effect) (closing []spare) {
	if !c.on() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.changing[name]--; c.changing[name] == 0 {
			delete(c.changing, name)
		}
		e := c.entries[name]
		switch {
		case did == unchanged:
		case did == changed || name == api.ACLDir:
			closing = append(closing, c.void(name)...)
		default:
			c.spoil(name)
			if e != nil {
				e.blank()
				c.weigh(e)
			}
		}
	}
	return closing
}

// put keeps a handle whose owner has closed it, and reports whether it does. The
// handle was opened with e, by a read that began when rights was counted. It is not
// kept if another master is in office already, as what is kept is about to go, and
// that one may have the handle open.
func (c *cache) put(e *entry, key openKey, one spare) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e == nil || e.dropped || one.rights != c.rights || one.epoch != c.epoch || c.idle >= mostSpare {
		return false
	}
	if e.handles == nil {
		e.handles = map[openKey][]spare{}
	}
	e.handles[key] = append(e.handles[key], one)
	c.idle++
	return true
}

// take returns a handle that was kept for such an Open. While this client is
// changing an access control list itself there is none: the change may have been
// made already, and the Open be refused.
func (c *cache) take(name api.Name, key openKey) (e *entry, one spare, ok bool, closing []spare) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.find(name); e == nil || c.changing[api.ACLDir] > 0 {
		return nil, one, false, nil
	}
	for list := e.handles[key]; len(list) > 0; list = e.handles[key] {
		one = list[len(list)-1]
		e.handles[key] = list[:len(list)-1]
		c.idle--
		if one.rights == c.rights {
			c.hit(e)
			return e, one, true, closing
		}
		closing = append(closing, one)
	}
	return e, one, false, closing
}

// count returns the numbers of now.
func (c *cache) count() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries, s.Bytes = len(c.entries), c.bytes
	return s
}
