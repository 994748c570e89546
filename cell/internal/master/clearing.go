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

// beginChange makes names uncacheable and tells every session except by, which dropped them before it asked.
// No session joins: the names are uncacheable from the first hold on.
func (co *coherence) beginChange(mu hold, by api.SessionID, names []api.Name) *change {
	ch := &change{names: names, since: co.epoch.clock()}
	for _, name := range names {
		co.copyset.changing[name]++
	}
	for _, name := range names {
		if cl := co.clearName(mu, by, name); cl != nil {
			ch.clearings, ch.since = append(ch.clearings, cl), min(ch.since, cl.since)
		}
	}
	return ch
}

// clearName tells every session except by to drop a name, and returns the clearing, or nil.
func (co *coherence) clearName(mu hold, by api.SessionID, name api.Name) *clearing {
	c := co.copyset
	if !c.cachedBeside(by, name) {
		return nil
	}
	if cl := c.clearings[name]; cl != nil { // the others were told, or are being told
		cl.changes++
		if spared := cl.by; spared != by && spared != 0 {
			//mutant: return cl
			cl.by = 0
			if one := c.copies[name][spared]; one != nil {
				co.dropCopy(cl, one)
			}
		}
		return cl
	}
	cl := &clearing{name: name, by: by, since: co.epoch.clock(), changes: 1, done: make(chan struct{})}
	c.clearings[name] = cl
	for id, one := range c.copies[name] {
		if id != cl.by {
			co.dropCopy(cl, one)
		}
		mu.pause(1)
	}
	return cl
}

// dropCopy tells a session once to drop a copy. epoch.mu is held.
func (co *coherence) dropCopy(cl *clearing, one *cachedCopy) {
	box := co.boxes.byID[one.session]
	if box == nil {
		co.copyset.forget(one)
		return
	}
	now, until := co.epoch.clock(), session.Instant(0)
	if one.leased {
		until = co.copyset.until[one.session]
	}
	if one.leased && one.sequence == 0 {
		co.epoch.reports.usages.ofSession[one.session].dropped(one.name, until > one.entered)
	}
	co.invalidate(box, one, now)
	cl.since = min(cl.since, one.posted)
	co.copyset.awaitLapse(cl, one, until, now)
}

// mustWait reports whether a change waits for any session except by. epoch.mu is held.
func (co *coherence) mustWait(by api.SessionID, names []api.Name) bool {
	if co.copyset.flush != nil && !co.copyset.flush.isDone() {
		return true
	}
	for _, name := range names {
		if co.copyset.cachedBeside(by, name) {
			return true
		}
	}
	return false
}

// endChange makes names cacheable again, after a change or without it. It also ends clearings that no change
// needs: some sessions may be silent for two leases, and others may cache the name anew.
func (co *coherence) endChange(ch *change) {
	co.epoch.mu.Lock()
	defer co.epoch.mu.Unlock()
	for _, cl := range ch.clearings {
		if cl.changes--; cl.changes == 0 && co.copyset.clearings[cl.name] == cl {
			delete(co.copyset.clearings, cl.name)
			co.copyset.lapses.Drop(cl)
		}
	}
	for _, name := range ch.names {
		if co.copyset.changing[name]--; co.copyset.changing[name] == 0 {
			delete(co.copyset.changing, name)
		}
	}
}

// beginFlush begins the clearing after a takeover. A session may have anything in its cache until it has
// acknowledged the fail-over or ended (Chubby §2.9, step 6), or earlier cache leases have expired. Only
// changes wait for it (decision 12). epoch.mu is held.
func (co *coherence) beginFlush() {
	flush := &clearing{since: co.epoch.clock(), left: map[api.SessionID]bool{}, done: make(chan struct{})}
	flush.ended = []func(){func() { co.epoch.reports.metrics.TakeoverCleared(co.epoch.clock().Sub(flush.since)) }}
	for s := range co.epoch.state().Sessions.All() {
		if s.MayCache {
			flush.left[s.ID] = true
		}
	}
	if len(flush.left) > 0 {
		co.copyset.flush = flush
		co.copyset.lapses.Put(flush, flush.since.Add(api.CacheLease))
	}
}

// takeoverFlush returns what changes wait for after a takeover, or nil. epoch.mu is held.
func (co *coherence) takeoverFlush() *change {
	flush := co.copyset.flush
	if flush == nil || flush.isDone() {
		return nil
	}
	return &change{since: flush.since, clearings: []*clearing{flush}}
}

// slowChange is the wait for caches after which the master logs a change.
const slowChange = time.Second
