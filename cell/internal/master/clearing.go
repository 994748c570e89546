package master

import (
	"iter"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// clearing waits until all sessions except by have dropped a name from their caches. All changes of the name
// share it, so a change costs the same for many sessions. The name is uncacheable meanwhile: no session
// joins, and each gets one event.
//
// After a takeover every change waits for a clearing without a name.
type clearing struct {
	name    api.Name
	by      api.SessionID          // only its changes wait, and it dropped the name before; 0 if there are others
	since   session.Instant        // when the first of its sessions was told
	changes int                    // that wait for it
	left    map[api.SessionID]bool // after a takeover: sessions without an acknowledgement
	done    chan struct{}          // closed at the end
	ended   []func()               // called then, with epoch.mu held
}

func (cl *clearing) isDone() bool {
	select {
	case <-cl.done:
		return true
	default:
		return false
	}
}

// change is one change of what clients may cache.
type change struct {
	names     []api.Name
	since     session.Instant // when the first of its sessions was told
	clearings []*clearing     // that it waits for
}

// nextClearing returns a clearing that the change still waits for, or nil.
func (ch *change) nextClearing() *clearing {
	for _, cl := range ch.clearings {
		if !cl.isDone() {
			return cl
		}
	}
	return nil
}

// cachedBeside reports whether another session may cache a name.
func (c *copyset) cachedBeside(by api.SessionID, name api.Name) bool {
	copies := c.copies[name]
	return len(copies) > 1 || len(copies) == 1 && copies[by] == nil
}

func (c *copyset) finish(cl *clearing) {
	close(cl.done)
	c.lapses.Drop(cl)
	for _, ended := range cl.ended {
		ended()
	}
	cl.ended = nil
}

// flushed records that a session has acknowledged the takeover, or ended.
func (c *copyset) flushed(id api.SessionID) {
	if c.flush == nil || !c.flush.left[id] {
		return
	}
	if delete(c.flush.left, id); len(c.flush.left) == 0 {
		c.finish(c.flush)
	}
}

// waitsFor reports whether a clearing waits for a session.
func (c *copyset) waitsFor(cl *clearing, id api.SessionID) bool {
	if cl.left != nil {
		return cl.left[id]
	}
	return !cl.isDone() && id != cl.by && c.copies[cl.name][id] != nil
}

// slow yields each session that a change waits for, once; sessions may acknowledge meanwhile. It skips
// repeated sessions, perhaps very many, without a pause: to visit all sessions, use slowOf.
func (c *copyset) slow(ch *change) iter.Seq[api.SessionID] {
	return func(yield func(api.SessionID) bool) {
		for i, cl := range ch.clearings {
			before := func(id api.SessionID) bool {
				return slices.ContainsFunc(ch.clearings[:i], func(other *clearing) bool { return c.waitsFor(other, id) })
			}
			for id := range c.slowOf(cl) {
				if !before(id) && !yield(id) {
					return
				}
			}
		}
	}
}

// slowOf yields the sessions of one clearing. They may acknowledge meanwhile.
func (c *copyset) slowOf(cl *clearing) iter.Seq[api.SessionID] {
	return func(yield func(api.SessionID) bool) {
		for id := range cl.left {
			if !yield(id) {
				return
			}
		}
		for id := range c.copies[cl.name] {
			if cl.left == nil && c.waitsFor(cl, id) && !yield(id) {
				return
			}
		}
	}
}

// asked returns how long a change has waited for a session: since the first event about a name it still has.
// A takeover counts from its start.
func (c *copyset) asked(ch *change, id api.SessionID, now session.Instant) time.Duration {
	since := now
	for _, cl := range ch.clearings {
		if one := c.copies[cl.name][id]; cl.left[id] {
			since = min(since, cl.since)
		} else if cl.left == nil && one != nil && one.sequence > 0 {
			since = min(since, one.posted)
		}
	}
	return now.Sub(since)
}

// left returns the rest of a session's cache lease.
func (c *copyset) left(id api.SessionID, now session.Instant) time.Duration {
	if until, ok := c.until[id]; ok {
		return max(until.Sub(now), 0)
	}
	return 0
}

// awaitLapse lets a clearing wait for a leased copy only until its lease expires: without the drop it is not
// renewed.
func (c *copyset) awaitLapse(cl *clearing, one *cachedCopy, until, now session.Instant) {
	if !one.leased {
		return
	}
	left := max(until.Sub(now), 0)
	//mutant: if left >= 0 {
	if left == 0 {
		c.release(one)
		return
	}
	if at, ok := c.lapses.At(cl); !ok || at < now.Add(left) {
		c.lapses.Put(cl, now.Add(left))
	}
}
