package master

import (
	"iter"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// clearing is that everybody drops what they have of a name in their caches. All changes
// of the name wait for it together, so that what a change costs does not grow with how
// many have the name: nobody is added while it goes on, for the name is uncacheable, and
// each is told once. It has ended when no session but by may use what it has of the name.
//
// That of no name is what every change waits for after a takeover.
type clearing struct {
	name     api.Name
	by       api.SessionID          // whose changes alone wait for it, and who dropped the name before; 0 if there are others
	since    session.Instant        // the longest ago that any of those it waits for was told
	changes  int                    // that wait for it
	removals []*removal             // that are looked at again when it has ended
	left     map[api.SessionID]bool // after a takeover: who has not acknowledged it
	done     chan struct{}          // closed when it has ended
	ended    func()                 // is called then, with epoch.mu held; may be nil
}

// isDone reports whether nobody has to drop anything.
func (cl *clearing) isDone() bool {
	select {
	case <-cl.done:
		return true
	default:
		return false
	}
}

// change is one change of what clients may have cached.
type change struct {
	names     []api.Name
	since     session.Instant // the longest ago that any of those it waits for was told
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

// cachedBeside reports whether anybody else has a name in a cache.
func (c *copyset) cachedBeside(by api.SessionID, name api.Name) bool {
	copies := c.copies[name]
	return len(copies) > 1 || len(copies) == 1 && copies[by] == nil
}

// finish ends a clearing.
func (c *copyset) finish(cl *clearing) {
	close(cl.done)
	if cl.ended != nil {
		cl.ended()
	}
	c.lapses.Drop(cl)
	if len(cl.removals) > 0 {
		c.cleared(cl.removals)
		cl.removals = nil
	}
}

// flushed takes note that a session has acknowledged the takeover, or has ended.
func (c *copyset) flushed(id api.SessionID) {
	if c.flush == nil || !c.flush.left[id] {
		return
	}
	if delete(c.flush.left, id); len(c.flush.left) == 0 {
		c.finish(c.flush)
	}
}

// waitsFor reports whether somebody has to drop something for a clearing.
func (c *copyset) waitsFor(cl *clearing, id api.SessionID) bool {
	if cl.left != nil {
		return cl.left[id]
	}
	return !cl.isDone() && id != cl.by && c.copies[cl.name][id] != nil
}

// slow yields the sessions that a change waits for, each once. They may acknowledge that
// meanwhile. Those of a second clearing that were yielded for the first are passed over,
// and there may be very many: code that looks at all of them uses slowOf, which can pause.
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

// slowOf yields the sessions that have to drop something for a clearing. They may
// acknowledge that meanwhile.
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

// asked returns for how long a change has waited for a session: since that was first
// told to drop one of the names that it has not dropped yet. (Of a takeover everybody was
// told when it began.)
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

// beginChange makes names uncacheable and has every session drop what it has of them,
// but the one whose change it is: that dropped it itself before it asked. epoch.mu is
// held, and released in between: the names are uncacheable from the first hold on, so
// nobody is added to those that have to be told.
func (co *coherence) beginChange(by api.SessionID, names []api.Name) *change {
	ch := &change{names: names, since: co.epoch.clock()}
	for _, name := range names {
		co.copyset.changing[name]++
	}
	for _, name := range names {
		if cl := co.clearName(by, name); cl != nil {
			ch.clearings, ch.since = append(ch.clearings, cl), min(ch.since, cl.since)
		}
	}
	return ch
}

// clearName has everybody drop a name but the one whose change it is, and returns what there
// is to wait for; nil if there is nothing. epoch.mu is held, and released in between.
func (co *coherence) clearName(by api.SessionID, name api.Name) *clearing {
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
		co.epoch.mu.pause(1)
	}
	return cl
}

// dropCopy tells a session to drop a copy, if it was not told. epoch.mu is held.
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
		box.usage.dropped(one.name, until > one.entered)
	}
	co.invalidate(box, one, now)
	cl.since = min(cl.since, one.posted)
	co.copyset.awaitLapse(cl, one, until, now)
}

// mustWait reports whether a change of names will have to wait for anybody but the
// one whose change it is. epoch.mu is held.
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

// endChange lets names be cached again, once a change has taken effect or never will. What
// no change waits for any more is not waited for: of those who were told some may be
// silent for two leases, and others may have the name anew.
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

// beginFlush begins with what an earlier master knew and this one does not: every
// session that may cache may have anything in its cache, until it has
// acknowledged the fail-over or has ended (Chubby §2.9, step 6), or until the longest
// cache lease is over that an earlier master may have granted. Only changes wait for
// that (decision 12). epoch.mu is held.
func (co *coherence) beginFlush() {
	flush := &clearing{since: co.epoch.clock(), left: map[api.SessionID]bool{}, done: make(chan struct{})}
	flush.ended = func() { co.epoch.metrics.TakeoverCleared(co.epoch.clock().Sub(flush.since)) }
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

// takeoverFlush returns what every change waits for after a takeover; nil if there is nothing.
// epoch.mu is held.
func (co *coherence) takeoverFlush() *change {
	flush := co.copyset.flush
	if flush == nil || flush.isDone() {
		return nil
	}
	return &change{since: flush.since, clearings: []*clearing{flush}}
}

// slowChange is how long a change may wait for somebody's cache before that is
// worth a line in the log.
const slowChange = time.Second
