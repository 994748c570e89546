package client

import (
	"context"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// How handles use the session's cache.

func (h *Handle) readCache(ctx context.Context, what wanted) (kept entry, ok bool) {
	if !h.isPlain() || what != wantStat && !h.openedFor.read {
		return entry{}, false
	}
	return readCache(ctx, h.client, h.name, h.opened.Instance, what)
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
		h.client.cache.store(f, api.Epoch(epoch), set)
	}
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
	from := h.client.cache.store(f, epoch, func(e *entry) {
		e.stat, e.absentError = &stat, nil
		if reply.GetReusable() && h.openedFor.read {
			e.readable = f.rightsChanges + 1
		}
	})
	if reply.GetReusable() && !stat.Ephemeral && h.openedFor.isShared() {
		h.mu.Lock()
		h.cacheEntry, h.cacheRights = from, f.rightsChanges
		h.mu.Unlock()
	}
}

// closeIdleHandle has the janitor close an idle handle at the cell. One of an earlier epoch's master is closed
// already.
func (c *Client) closeIdleHandle(one idleHandle) {
	send := closeSender(one.token)
	known := func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
		if api.Epoch(caller.GetEpoch()) != one.epoch {
			return nil
		}
		return send(ctx, t, caller, m)
	}
	c.janitor.add(func(ctx context.Context) { c.giveBack(ctx, "close", rootPath(c.cell.cfg), known) })
}

func (o OpenOptions) openKey() openKey {
	return openKey{
		read: o.Read, write: o.Write, changeACL: o.ChangeACL, noCache: o.NoCache, cacheLock: o.CacheLock,
		watches: len(o.Events) > 0, watchesConflicts: slices.Contains(o.Events, api.EventConflictingLock),
		create: o.Create, kind: o.Kind, delay: o.LockDelay,
	}
}

// openFromCache answers an Open from the cache: with an idle handle, or because the node is known to be
// absent (Chubby §2.7). ok is false if the cell must be asked.
func (c *Client) openFromCache(ctx context.Context, p api.Path, opts OpenOptions) (h *Handle, ok bool, err error) {
	key := opts.openKey()
	var absent *api.Error
	var from *entry
	var idle *idleHandle
	if opts.NoCache {
		return nil, false, nil
	}
	hit := fromCache(ctx, c, func(now session.Instant) (is finding) {
		if opts.Create == Existing {
			if absent, is = c.cache.absentErrorOf(now, p.Name()); is != foundNothing {
				return is
			}
		}
		if !key.isShared() {
			return foundNothing
		}
		from, idle, is = c.cache.takeIdle(now, p.Name(), key)
		return is
	})
	switch {
	case !hit:
		return nil, false, nil
	case absent != nil && absent.Path != p.String(): // the absent node was opened by another name of the cell
		return nil, true, &api.Error{Code: absent.Code, Op: absent.Op, Path: p.String(), Replica: absent.Replica, Message: absent.Message}
	case absent != nil:
		return nil, true, absent
	}
	h = newHandle(c, p, opts)
	h.id, h.token, h.opened.Instance = idle.id, idle.token, idle.instance
	h.cacheEntry, h.cacheRights = from, idle.rightsChanges
	c.handles.put(h)
	return h, true, nil
}

// park keeps a handle closed by its owner as an idle handle, and reports whether it does: not after a lock
// request through the handle, or with a pending call, as only the open handle may remain at the cell.
func (h *Handle) park() bool {
	h.mu.Lock()
	from, one := h.cacheEntry, idleHandle{token: h.token, id: h.id, instance: h.opened.Instance, rightsChanges: h.cacheRights}
	used := h.lock.requested || h.boundToken != nil || h.callsInFlight > 0
	h.mu.Unlock()
	one.epoch = h.client.Epoch()
	return from != nil && !used && h.client.State() == session.Safe && h.client.cache.park(from, h.openedFor, one)
}
