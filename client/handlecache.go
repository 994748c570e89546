package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// What handles do with the session's cache. Every use of it looks at the clock
// first: what is in the cache at a moment at which the lease runs is true at that
// moment.

// fromCache reports whether a call on the handle may be answered from the cache,
// if what it asks for is there.
func (h *Handle) canUseCache(ctx context.Context) bool {
	return h.client.cache.on() && ctx.Err() == nil && h.isPlain() && h.client.session.isSafe()
}

// plain reports whether nothing but the node itself decides what a call on the
// handle comes to.
func (h *Handle) isPlain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unusable == nil && h.boundToken == nil
}

// keep keeps what a call on a handle has read.
func (h *Handle) cacheRead(f *fetch, epoch uint64, cacheable bool, set func(*entry)) {
	if cacheable && h.isPlain() {
		_, closing := h.client.cache.keep(f, api.Epoch(epoch), set)
		h.client.retire(closing)
	}
}

// withoutLock is metadata as it is cached, and so as a session that caches shows
// it: locks come and go without a word to caches (decision 9).
func withoutLock(s api.Stat) *api.Stat {
	s.Lock = 0
	return &s
}

// invalidate drops what the cell says.
func (c *Client) invalidate(path string) {
	p, err := api.ParsePath(path)
	if err != nil {
		c.retire(c.cache.flush(0)) // whatever it was meant to name
		return
	}
	c.retire(c.cache.invalidate(p.Name()))
}

// opened takes note of what the answer to an Open says, for the cache.
func (h *Handle) noteOpened(f *fetch, epoch api.Epoch, reply *chubbypb.OpenReply) {
	stat, err := reply.GetStat().Stat()
	if err != nil {
		return // without an instance nothing is found in the cache
	}
	h.mu.Lock()
	h.instance = stat.Instance
	h.mu.Unlock()
	// The answer has the path that was asked for, and the cell may be called local
	// in it; reads show the cell's own name, whoever has opened the node.
	if path, err := h.name.In(h.client.cell.locator.cellNameOr(h.client.cfg.Cell)); err == nil {
		stat.Path = path
	}
	if !reply.GetCacheable() {
		return
	}
	from, closing := h.client.cache.keep(f, epoch, func(e *entry) { e.stat, e.absent = withoutLock(stat), nil })
	h.client.retire(closing)
	if reply.GetReusable() && !stat.Ephemeral && h.shareable {
		h.mu.Lock()
		h.cacheEntry, h.cacheRights = from, f.rights
		h.mu.Unlock()
	}
}

// absent keeps that there is no such node, if that is what an Open was told.
func (c *Client) absent(f *fetch, epoch api.Epoch, err error) {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.NotFound && e.Cacheable {
		_, closing := c.cache.keep(f, epoch, func(kept *entry) { kept.blank(); kept.absent = e })
		c.retire(closing)
	}
}
