package client

import "github.com/chubbylock/chubby/api"

// fetch is a read that is in flight. It is spoiled if what it brings may not be
// cached.
type fetch struct {
	name          api.Name
	rightsChanges uint64 // of the cache when the read began
	spoiled       bool
}

// beginFetch registers a read that is about to be sent.
func (c *cache) beginFetch(name api.Name) *fetch {
	if !c.enabled() {
		return &fetch{spoiled: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Misses++
	f := &fetch{name: name, rightsChanges: c.rightsChanges, spoiled: c.changing[name] > 0}
	c.fetches[f] = struct{}{}
	return f
}

// endFetch removes a read that has ended.
func (c *cache) endFetch(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fetches, f)
}

// invalidate drops everything of a name, because the master says so.
func (c *cache) invalidate(name api.Name) (closing []idleHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Invalidations++
	return c.evict(name)
}

// evict removes the entry of a name, and spoils reads of it; mu is held.
func (c *cache) evict(name api.Name) (closing []idleHandle) {
	c.spoilFetches(name)
	if e := c.entries[name]; e != nil {
		closing = c.remove(e)
	}
	return closing
}

// spoilFetches prevents that a read of a name that is in flight is cached; mu is
// held.
func (c *cache) spoilFetches(name api.Name) {
	if name == api.ACLDir { // clients that may open something are told when a list there changes
		c.rightsChanges++
	}
	for f := range c.fetches {
		if f.name == name {
			f.spoiled = true
		}
	}
}

// flush drops everything, and takes only what masters of at least that epoch say from
// now on. It returns the idle handles that are still open at the cell: a new master
// does not know them, but the present one does, whatever has become of the lease.
func (c *cache) flush(epoch api.Epoch) (closing []idleHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.removed = true
		if epoch > c.epoch {
			continue
		}
		for _, list := range e.idle {
			closing = append(closing, list...)
		}
	}
	for f := range c.fetches {
		f.spoiled = true
	}
	clear(c.entries)
	c.used.Init()
	if epoch > c.epoch {
		c.lease.end = 0
	}
	c.epoch, c.bytes, c.idleCount = max(c.epoch, epoch), 0, 0
	c.stats.Flushes++
	return closing
}

// beginChange makes unusable what a change by this client is about to touch. A read
// that is part of the change (an Open that may create a node reads too) is not
// spoiled: what it brings is cached if the change turns out to be none.
func (c *cache) beginChange(names []api.Name, part *fetch) {
	if !c.enabled() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	spoiled := part != nil && part.spoiled
	for _, name := range names {
		c.changing[name]++
		c.spoilFetches(name)
	}
	if part != nil {
		part.spoiled = spoiled
	}
}

// changeEffect is what a change by this client has done to the nodes that it touches.
type changeEffect uint8

const (
	effectNone     changeEffect = 0
	effectContents changeEffect = 1 // the contents have changed: idle handles stay good
	effectAny      changeEffect = 2 // anything may have changed
)

// endChange undoes beginChange, and drops what the change has made untrue.
func (c *cache) endChange(names []api.Name, did changeEffect) (closing []idleHandle) {
	if !c.enabled() {
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
		case did == effectNone:
		case did == effectAny || name == api.ACLDir:
			closing = append(closing, c.evict(name)...)
		default:
			c.spoilFetches(name)
			if e != nil {
				e.clearReads()
				c.account(e)
			}
		}
	}
	return closing
}
