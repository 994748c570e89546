package client

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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

// retire closes handles at the cell that were kept for another Open, and will
// not be used. Those that another master had open are not open any more.
func (c *Client) retire(closing []spare) {
	for _, one := range closing {
		send := closeSender(one.token)
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
	h.id, h.token, h.instance, h.cacheEntry, h.cacheRights = one.id, one.token, one.instance, from, one.rights
	c.handles.put(h)
	return h, nil, true
}

// spareIt keeps a handle that its owner has closed for another Open, and reports
// whether it did. No lock was ever asked for through it, and no call on it is
// under way, so that nothing of it is left at the cell except that it is open.
func (h *Handle) park() bool {
	h.mu.Lock()
	from, one := h.cacheEntry, spare{token: h.token, id: h.id, instance: h.instance, rights: h.cacheRights}
	used := h.lockRequested || h.boundToken != nil || h.callsInFlight > 0
	h.mu.Unlock()
	one.epoch = h.client.Epoch()
	return from != nil && !used && h.client.session.isSafe() && h.client.cache.put(from, h.openedFor, one)
}
