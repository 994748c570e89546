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
func (h *Handle) fromCache(ctx context.Context) bool {
	return h.client.cache.on() && ctx.Err() == nil && h.plain() && h.client.session.isSafe()
}

// plain reports whether nothing but the node itself decides what a call on the
// handle comes to.
func (h *Handle) plain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken == nil && h.guarded == nil
}

// keep keeps what a call on a handle has read.
func (h *Handle) keep(f *fetch, epoch uint64, cacheable bool, set func(*entry)) {
	if cacheable && h.plain() {
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

// retire closes handles at the cell that were kept for another Open, and will
// not be used. Those that another master had open are not open any more.
func (c *Client) retire(closing []spare) {
	for _, one := range closing {
		send := closer(one.token)
		known := func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			if api.Epoch(caller.GetEpoch()) != one.epoch {
				return nil
			}
			return send(ctx, t, caller, m)
		}
		c.janitor.leave(func(ctx context.Context) {
			_ = c.insist(ctx, "close", c.cell.root(), c.numbers.allocateNow(), classCleanup, known) // what cannot be closed is gone
		})
	}
}

// closeSpares closes the handles that were kept for another Open, which count
// against the quota of the principal although its program has closed them. It
// reports whether there were any.
func (c *Client) closeSpares() bool {
	closing := c.cache.spares()
	c.retire(closing)
	return len(closing) > 0
}

// openKey returns what another Open must ask for to share a handle of these
// options; false if none may: the handle is for events, or the Open is to make
// sure that there was no such node.
func (o OpenOptions) openKey() (openKey, bool) {
	shared := len(o.Events) == 0 && (o.Create == Existing || o.Create == File || o.Create == Directory)
	return openKey{
		read: o.Read, write: o.Write, changeACL: o.ChangeACL, create: o.Create, kind: o.Kind, delay: int64(o.LockDelay),
	}, shared
}

// reopen answers an Open from the cache: by a handle that was closed here and is
// open at the cell, or because the node is known to be absent (Chubby §2.7). ok is
// false if the cell has to be asked.
func (c *Client) reopen(ctx context.Context, p api.Path, opts OpenOptions) (h *Handle, err error, ok bool) {
	if usable := c.cache.on() && ctx.Err() == nil && c.session.isSafe(); !usable {
		return nil, nil, false
	}
	if absent := c.cache.absence(p.Name()); absent != nil && opts.Create == Existing {
		if absent.Path != p.String() { // it was asked for by another name of the cell
			absent = &api.Error{Code: absent.Code, Op: absent.Op, Path: p.String(), Replica: absent.Replica, Message: absent.Message}
		}
		return nil, absent, true
	}
	key, shared := opts.openKey()
	if !shared {
		return nil, nil, false
	}
	from, one, ok, closing := c.cache.take(p.Name(), key)
	c.retire(closing)
	if !ok {
		return nil, nil, false
	}
	h = newHandle(c, p, opts)
	h.id, h.token, h.instance, h.from, h.rights = one.id, one.token, one.instance, from, one.rights
	c.handles.put(h)
	return h, nil, true
}

// spareIt keeps a handle that its owner has closed for another Open, and reports
// whether it did. No lock was ever asked for through it, and no call on it is
// under way, so that nothing of it is left at the cell except that it is open.
func (h *Handle) spareIt() bool {
	h.mu.Lock()
	from, one := h.from, spare{token: h.token, id: h.id, instance: h.instance, rights: h.rights}
	used := h.locked || h.guarded != nil || h.running > 0
	h.mu.Unlock()
	one.epoch = h.client.Epoch()
	return from != nil && !used && h.client.session.isSafe() && h.client.cache.put(from, h.asked, one)
}

// opened takes note of what the answer to an Open says, for the cache.
func (h *Handle) opened(f *fetch, epoch api.Epoch, reply *chubbypb.OpenReply) {
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
	if reply.GetReusable() && !stat.Ephemeral && h.shared {
		h.mu.Lock()
		h.from, h.rights = from, f.rights
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
