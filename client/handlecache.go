package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// How handles use the session's cache.

func (h *Handle) fromCache(ctx context.Context, look func(now session.Instant) finding) bool {
	return h.isPlain() && fromCache(ctx, h.client, look)
}

// isPlain reports whether only the node itself decides the result of a call, and may be cached.
func (h *Handle) isPlain() bool {
	if h.openedFor.noCache {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unusable == nil && h.boundToken == nil
}

func (h *Handle) cacheRead(f *fetch, epoch uint64, cacheable bool, set func(*entry)) {
	if cacheable && h.isPlain() {
		_, closing := h.client.cache.store(f, api.Epoch(epoch), set)
		h.client.closeIdleHandles(closing)
	}
}

func (c *Client) invalidatePath(path string) {
	p, err := api.ParsePath(path)
	if err != nil {
		c.closeIdleHandles(c.cache.flush(0)) // as the intended name is unknown
		return
	}
	c.closeIdleHandles(c.cache.invalidate(p.Name()))
}

func (h *Handle) noteOpened(f *fetch, epoch api.Epoch, reply *chubbypb.OpenReply) {
	stat, err := h.statAsShown(reply.GetStat())
	if err != nil {
		return // without an instance the cache finds nothing
	}
	// The answer's path may call the cell local; reads show the cell's own name.
	if path, err := h.name.In(h.client.cell.locator.cellNameOr(h.client.cfg.Cell)); err == nil {
		stat.Path = path
	}
	h.mu.Lock()
	h.opened = stat
	h.mu.Unlock()
	if !reply.GetCacheable() {
		return
	}
	from, closing := h.client.cache.store(f, epoch, func(e *entry) {
		e.stat, e.absentError = &stat, nil
		if reply.GetReusable() && h.reads {
			e.readable = f.rightsChanges + 1
		}
	})
	h.client.closeIdleHandles(closing)
	if reply.GetReusable() && !stat.Ephemeral && h.shareable {
		h.mu.Lock()
		h.cacheEntry, h.cacheRights = from, f.rightsChanges
		h.mu.Unlock()
	}
}

func (c *Client) cacheAbsence(f *fetch, epoch api.Epoch, err error) {
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.NotFound && e.Cacheable {
		_, closing := c.cache.store(f, epoch, func(kept *entry) { kept.clearReads(); kept.absentError, kept.readable = e, 0 })
		c.closeIdleHandles(closing)
	}
}
