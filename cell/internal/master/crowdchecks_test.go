package master

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/master/tables"
)

// settle ends all failures, waits, and checks the promises.
func (w *crowd) settle() {
	w.refusals.Store(0)
	w.losses.Store(0)
	if w.current.isDeposed() {
		w.elect()
	}
	w.mu.Lock()
	for _, c := range w.members {
		c.silent = false
	}
	w.limits = defaultLimits()
	w.limits.claims = 1000
	w.limit()
	w.mu.Unlock()
	for range 12 { // for leases, lock-delays, and places that are kept
		w.insist()
		time.Sleep(10 * time.Second)
	}
	synctest.Wait()
	w.checkPlaces()
	w.checkCaches()
	for range 100 {
		w.mu.Lock()
		left := 0
		for _, c := range w.members {
			c.letGo()
			if !c.dead {
				left += len(c.open)
			}
		}
		w.mu.Unlock()
		if left == 0 {
			break
		}
		w.insist()
		time.Sleep(5 * time.Second)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	w.checkAnswers()
}

// insist makes every client resend its unanswered requests that have no waiting copy.
func (w *crowd) insist() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for _, r := range c.outstanding() {
			if r.copies == 0 && !r.abandoned && !c.dead {
				c.send(r, c.declaration(r.number))
			}
		}
	}
}

// checkOffers checks that waiters that can have a lock are being offered it, or will be on the next
// tick. It may be called at any time: later something else may offer it to them.
func (w *crowd) checkOffers() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current.isDeposed() {
		return
	}
	m := w.current.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	tree := m.epoch.state().Tree
	for name, line := range m.tables.Queues.ByName {
		node, there := tree.Get(name)
		_, delayed := tree.Delay(name)
		if !there || delayed || node.Revoked != nil || m.tables.Outbox.Locks[name] || slices.ContainsFunc(line, func(w *tables.Waiter) bool { return onItsWay(m.tables.Queues, w) }) {
			continue
		}
		if lead := m.tables.Queues.Leading(node.Ref(), node.Mode); len(lead) > 0 {
			w.t.Errorf("%+v waits for %s, and will not be offered it: held by %v", lead[0], name, node.Holders)
		}
	}
}

// onItsWay reports whether a command that may move a waiter is on its way.
func onItsWay(q *tables.Queues, w *tables.Waiter) bool {
	return w.Offered || w.Refusal != nil || q.IsClosing(w.Claim.By())
}

// checkPlaces checks that no waiter could have the lock.
func (w *crowd) checkPlaces() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.current.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	tree := m.epoch.state().Tree
	for name, line := range m.tables.Queues.ByName {
		node, there := tree.Get(name)
		for _, w1 := range line {
			if !there || w1.Lock != node.Ref() {
				w.t.Errorf("a waiter for %v, which is gone: %+v", w1.Lock, w1)
			}
			if w1.IsAbsent() || m.tables.Queues.IsClosing(w1.Claim.By()) || w1.Offered {
				w.t.Errorf("absent %v, closing %v, offered %v, long after: %+v", w1.IsAbsent(), m.tables.Queues.IsClosing(w1.Claim.By()), w1.Offered, w1)
			}
		}
		if !there {
			continue
		}
		if lead := m.tables.Queues.Leading(node.Ref(), node.Mode); len(lead) > 0 && node.Revoked == nil {
			d, delayed := tree.Delay(name)
			w.t.Errorf("%+v waits for %s, and nothing prevents the grant: held by %v, delay %v %v", lead[0], name, node.Holders, d, delayed)
		}
	}
	for name, d := range tree.Delays() {
		w.t.Errorf("%s is still delayed: %v", name, d)
	}
}

// checkCaches checks that the clients' caches agree with the state.
func (w *crowd) checkCaches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for name, have := range c.cache {
			if c.dead || c.changing[name] > 0 {
				continue
			}
			node, there := w.state.Load().Tree.Get(name)
			if !there || seenOf(node) != have {
				w.t.Errorf("session %v has %+v of %s in its cache; there is %+v", c.id, have, name, node)
			}
		}
	}
}

// checkUsable checks at a moment at which a change has taken effect that no client may
// use anything that it has made untrue.
func (w *crowd) checkUsable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		c.checkUsable()
	}
}

// checkUsable checks that what a client may use of its cache is true.
func (c *member) checkUsable() {
	now, tree := time.Now(), c.w.state.Load().Tree
	if c.dead || c.ended || !now.Before(c.lease) || c.leased && !now.Before(c.cached) {
		return
	}
	for name, have := range c.cache {
		if node, there := tree.Get(name); c.changing[name] == 0 && (!there || seenOf(node) != have) {
			c.w.t.Errorf("session %v may use %+v of %s in its cache, under a lease %v (until %v); there is %+v", c.id, have, name, c.leased, c.cached.Sub(now), node)
		}
	}
}

// checkAnswers checks that every call has returned, and that every holder of a lock knows that it holds it.
func (w *crowd) checkAnswers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.members {
		for _, r := range c.all {
			if r.copies > 0 || !r.done && !r.abandoned && !c.dead {
				w.t.Errorf("request %d of session %v, %s: done %v, %d copies have not returned", r.number, c.id, r.what, r.done, r.copies)
			}
		}
	}
	for node := range w.state.Load().Tree.Locked("") {
		for _, h := range node.Holders {
			w.t.Errorf("%v holds %s and does not know", h.Owner, node.Name)
		}
	}
}

// tidyUp has every client close what it has open, and checks that nothing is left of it.
func (w *crowd) tidyUp() {
	for range 100 {
		left := 0
		w.mu.Lock()
		for _, c := range w.members {
			for c.letGo(); len(c.handles) > 0 && !c.dead; {
				c.closeSome()
			}
			if !c.dead {
				left += len(c.open)
			}
		}
		w.mu.Unlock()
		if left == 0 {
			break
		}
		w.insist()
		time.Sleep(5 * time.Second)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	m := w.current.Master
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	for node := range m.epoch.state().Tree.All() {
		failIf(w.t, len(node.Holders) > 0 || node.Ephemeral, "left: %+v", node)
	}
	h, q := m.tables.Handles, m.tables.Queues
	if h.Used.All+q.Used.All+len(h.Used.Of)+len(q.Used.Of)+len(h.OnNode)+len(h.Refusing)+len(q.ByName) > 0 {
		w.t.Errorf("left: handles %v on %v, refusals %v, waiters %v of %v", h.Used, h.OnNode, h.Refusing, q.ByName, q.Used)
	}
	recountMail(w.t, m.tables.Boxes)
}

// leave ends all sessions, and checks that the master remembers nothing of them.
func (w *crowd) leave() {
	w.mu.Lock()
	for _, c := range w.members {
		if w.percent(50) {
			c.endSession()
		} else {
			c.silent = true
		}
	}
	w.mu.Unlock()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	m := w.current.Master
	if n := m.epoch.state().Sessions.Len(); n > 0 {
		w.t.Errorf("%d sessions are left", n)
	}
	m.epoch.mu.Lock()
	defer m.epoch.mu.Unlock()
	for what, n := range m.remembered() {
		if n != 0 {
			w.t.Errorf("%s: %d are left", what, n)
		}
	}
	for node := range m.epoch.state().Tree.All() {
		if len(node.Holders) > 0 || len(node.Openers) > 0 || node.Ephemeral && node.Children == 0 {
			w.t.Errorf("left: %+v", node)
		}
	}
	report(w.t, m.epoch.state().Check())
}

// remembered counts what a master remembers of sessions. The caller holds epoch.mu.
func (m *Master) remembered() map[string]int {
	m.epoch.proposer.mu.Lock()
	defer m.epoch.proposer.mu.Unlock()
	pending, bytes, shares := len(m.epoch.proposer.pending), m.epoch.proposer.bytes, len(m.epoch.proposer.shares)
	r, c := m.remover, m.tables.Copyset
	flush := 0
	if c.Flush != nil {
		flush = len(c.Flush.Left)
	}
	return map[string]int{
		"leases": m.tables.Leases.Len(), "mail": len(m.tables.Boxes.Used.Of), "mailboxes": len(m.tables.Boxes.ByID), "raising": len(m.Sessions.raising), "unended": len(m.tables.Outbox.Ends),
		"handles": len(m.tables.Handles.Of), "handles by node": len(m.tables.Handles.OnNode), "principals with handles": len(m.tables.Handles.Used.Of),
		"queues": len(m.tables.Queues.ByName), "waiters": len(m.tables.Queues.BySession), "absent waiters": m.tables.Queues.Absent.Len(), "settled waiters": len(m.tables.Outbox.Requests),
		"principals with waiters": len(m.tables.Queues.Used.Of), "locks to be offered again": len(m.tables.Outbox.Locks), "closes on their way": len(m.tables.Queues.Closing),
		"lost locks": len(m.revocations.locks), "locks to be taken again": len(m.tables.Outbox.Evictions), "ending sessions": len(m.revocations.ends), "last leases": m.revocations.lastLeases.Len(),
		"delays": len(m.tables.Delays.IDs), "timed delays": m.tables.Delays.Ends.Len(),
		"copies": len(c.Copies), "names in caches": len(c.Names), "invalidations": len(c.Told), "cache leases": len(c.Until), "lapses": c.Lapses.Len(), "order of copies": len(c.Order),
		"bytes of copies": len(c.Bytes), "principals with copies": len(c.Used.Of), "names that change": len(c.Changing), "clearings": len(c.Clearings), "flush": flush,
		"dying nodes": len(r.dying), "removals": len(r.waiting), "removals to look at": len(r.again), "removals to be done": len(r.ready),
		"proposals": pending, "bytes of proposals": bytes, "shares of proposals": shares,
	}
}
