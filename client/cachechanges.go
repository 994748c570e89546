package client

import (
	"github.com/chubbylock/chubby/api"
)

// fetch is a read that is under way. It is spoiled if what it brings may not be
// kept.
type fetch struct {
	name    api.Name
	rights  uint64
	spoiled bool
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
