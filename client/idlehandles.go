package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// openKey is what two calls of Open must have in common to share a handle.
type openKey struct {
	read, write, changeACL, noCache bool
	create                          Creation
	kind                            api.Kind
	delay                           int64
}

// idleHandle is a handle that its owner has closed, still open at the cell.
type idleHandle struct {
	token         []byte
	id            api.HandleID
	instance      api.Generation
	rightsChanges uint64    // of the cache when the handle was opened
	epoch         api.Epoch // of the session when the handle was closed: of the master with the open handle
}

func (c *cache) takeAllIdle() (closing []idleHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		for _, list := range e.idle {
			closing = append(closing, list...)
		}
		clear(e.idle)
	}
	c.idleCount = 0
	return closing
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
// changing an ACL: the Open might be refused. closing are idle handles that rights changes have made useless.
func (c *cache) takeIdle(now session.Instant, name api.Name, key openKey) (e *entry, idle *idleHandle, closing []idleHandle, is finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.lookup(name); e == nil || c.changing[api.ACLDir] > 0 {
		return nil, nil, nil, foundNothing
	}
	for list := e.idle[key]; len(list) > 0; list = e.idle[key] {
		one := list[len(list)-1]
		good := one.rightsChanges == c.rightsChanges
		if good && c.use(e, now) == foundLapsed {
			return nil, nil, closing, foundLapsed
		}
		e.idle[key] = list[:len(list)-1]
		c.idleCount--
		if good {
			if key.read {
				e.readable = one.rightsChanges + 1
			}
			return e, &one, closing, foundUsable
		}
		closing = append(closing, one)
	}
	return nil, nil, closing, foundNothing
}

// closeIdleHandles has the janitor close idle handles at the cell. Those of an earlier epoch's master are
// closed already.
func (c *Client) closeIdleHandles(closing []idleHandle) {
	for _, one := range closing {
		send := closeSender(one.token)
		known := func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			if api.Epoch(caller.GetEpoch()) != one.epoch {
				return nil
			}
			return send(ctx, t, caller, m)
		}
		c.janitor.add(func(ctx context.Context) {
			_ = c.sendUntilAnswered(ctx, "close", rootPath(c.cell.cfg), c.numbers.allocateNow(), classCleanup, known) // else it is gone
		})
	}
}

// closeAllIdleHandles closes all idle handles, which count against the principal's quota. It reports whether
// it found any.
func (c *Client) closeAllIdleHandles() bool {
	closing := c.cache.takeAllIdle()
	c.closeIdleHandles(closing)
	return len(closing) > 0
}

// openKey returns what another Open must ask for to share a handle with these options. It returns false for a
// handle with events, CacheLock or NoCache, or an Open that requires an absent node.
func (o OpenOptions) openKey() (openKey, bool) {
	shared := len(o.Events) == 0 && !o.CacheLock && !o.NoCache && (o.Create == Existing || o.Create == File || o.Create == Directory)
	return openKey{
		read: o.Read, write: o.Write, changeACL: o.ChangeACL, create: o.Create, kind: o.Kind, delay: int64(o.LockDelay), noCache: o.NoCache,
	}, shared
}

// openFromCache answers an Open from the cache: with an idle handle, or because the node is known to be
// absent (Chubby §2.7). ok is false if the cell must be asked.
func (c *Client) openFromCache(ctx context.Context, p api.Path, opts OpenOptions) (h *Handle, ok bool, err error) {
	key, shared := opts.openKey()
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
		if !shared {
			return foundNothing
		}
		var closing []idleHandle
		from, idle, closing, is = c.cache.takeIdle(now, p.Name(), key)
		c.closeIdleHandles(closing)
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
	used := h.lockRequested || h.boundToken != nil || h.callsInFlight > 0
	h.mu.Unlock()
	one.epoch = h.client.Epoch()
	return from != nil && !used && h.client.State() == session.Safe && h.client.cache.park(from, h.openedFor, one)
}
