package client

import "github.com/chubbylock/chubby/api"

// fetch is a pending read. A spoiled fetch must not be cached.
type fetch struct {
	name          api.Name
	rightsChanges uint64 // of the cache when the read began
	spoiled       bool
}

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

func (c *cache) endFetch(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fetches, f)
}

func (c *cache) invalidate(path string) {
	p, err := api.ParsePath(path)
	if err != nil {
		c.flush(0) // as the intended name is unknown
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Invalidations++
	c.evict(p.Name())
}

// evict removes the entry of a name, and spoils reads of it; mu is held.
func (c *cache) evict(name api.Name) {
	c.spoilFetches(name)
	if e := c.entries[name]; e != nil {
		c.remove(e)
	}
}

// spoilFetches marks pending reads of a name as spoiled; mu is held.
func (c *cache) spoilFetches(name api.Name) {
	if name == api.ACLDir { // clients that may open nodes get this when a list there changes
		c.rightsChanges++
	}
	for f := range c.fetches {
		if f.name == name {
			f.spoiled = true
		}
	}
}

// flush drops everything, and then accepts only data from that epoch on. It closes the idle handles that are
// still open at the cell, which the present master knows, whatever the lease.
func (c *cache) flush(epoch api.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.removed = true
		if epoch <= c.epoch {
			c.discardIdle(e)
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
	c.epoch, c.stats.Bytes, c.idleCount = max(c.epoch, epoch), 0, 0
	c.stats.Flushes++
}

// beginChange disables the data that a change by this client will touch. A read within the change (an Open
// that may create a node) is not spoiled: its result is cached if nothing changes.
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

type changeEffect uint8

const (
	effectNone     changeEffect = 0
	effectContents changeEffect = 1 // new contents: idle handles stay good
	effectAny      changeEffect = 2 // anything may have changed
)

// endChange undoes beginChange, and drops changed data.
func (c *cache) endChange(names []api.Name, did changeEffect) {
	if !c.enabled() {
		return
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
			c.evict(name)
		default:
			c.spoilFetches(name)
			if e != nil {
				e.clearReads()
				c.account(e)
			}
		}
	}
}
