package master

import (
	"iter"
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// queues is the wait queues of all locks, in ticket order. It holds no lock and reads no clock; epoch.mu
// guards it.
//
// Each question has an index: by lock, by session, by handle, and absent waiters by the ends of their places.
// No method visits all waiters of the cell, or of a session, which may have its whole quota.
type queues struct {
	byName    map[api.Name][]*waiter
	bySession map[api.SessionID]map[api.RequestNumber]*waiter
	byHandle  map[namespace.Owner]map[*waiter]bool
	declared  map[lockOwner]map[*waiter]bool // by declared owner
	detecting map[*waiter]bool               // want an answer if they wait for themselves
	absent    session.Timetable[*waiter]     // by the ends of their places
	outbox    *outbox                        // locks and requests to look at again
	issued    uint64                         // tickets of this epoch
	used      tally                          // waiters
	closing   map[namespace.Owner]int        // Closes on their way to the log
	claims    int                            // max bytes that leading returns; see limits
}

func newQueues(out *outbox, claims int) *queues {
	return &queues{
		byName: map[api.Name][]*waiter{}, bySession: map[api.SessionID]map[api.RequestNumber]*waiter{},
		byHandle: map[namespace.Owner]map[*waiter]bool{},
		declared: map[lockOwner]map[*waiter]bool{}, detecting: map[*waiter]bool{},
		outbox: out, used: newTally(), closing: map[namespace.Owner]int{},
		claims: claims,
	}
}

func (q *queues) get(key waiterKey) *waiter { return q.bySession[key.session][key.number] }

// join queues a request, or returns the waiter with its kept place. Tickets of an earlier epoch keep their
// order. allowed is the principal's quota. After a fail-over newcomers may come first, so returning requests
// have twice the places.
func (q *queues) join(w *waiter, epoch api.Epoch, allowed int) (*waiter, error) {
	if kept := q.get(w.key()); kept != nil {
		if kept.isAbsent() { // a new holder was not told
			kept.told = false
			q.absent.Drop(kept)
		}
		kept.streams++
		return kept, nil
	}
	line := q.byName[w.lock.Name]
	waiting, used := len(line), q.used.of[w.who]
	back := w.ticket != (Ticket{}) && w.ticket.Epoch < epoch
	if back {
		waiting, used = waiting/2, used/2
	}
	if waiting >= api.MaxWaiters {
		return nil, &refusal.Refusal{Cause: refusal.LockWaiters, Used: int64(len(line)), Allowed: api.MaxWaiters}
	}
	if used >= allowed {
		return nil, &refusal.Refusal{Cause: refusal.WaiterQuota, Principal: w.who, Used: int64(q.used.of[w.who]), Allowed: int64(allowed)}
	}
	q.used.add(w.who, 1)
	if !back {
		q.issued++
		w.ticket = Ticket{Epoch: epoch, Number: q.issued}
	}
	w.streams = 1
	w.done = make(chan struct{})
	at, _ := slices.BinarySearchFunc(line, w.ticket, byTicket)
	q.byName[w.lock.Name] = slices.Insert(line, at, w)
	key := w.key()
	if q.bySession[key.session] == nil {
		q.bySession[key.session] = map[api.RequestNumber]*waiter{}
	}
	q.bySession[key.session][key.number] = w
	if q.byHandle[w.owner()] == nil {
		q.byHandle[w.owner()] = map[*waiter]bool{}
	}
	q.byHandle[w.owner()][w] = true
	if w.detects {
		q.detecting[w] = true
	}
	if o := w.lockOwner(); o.declared != "" {
		if q.declared[o] == nil {
			q.declared[o] = map[*waiter]bool{}
		}
		q.declared[o][w] = true
	}
	return w, nil
}

func byTicket(w *waiter, t Ticket) int {
	switch {
	case w.ticket.before(t):
		return -1
	case t.before(w.ticket):
		return 1
	}
	return 0
}

// removeWaiter takes a waiter out of its queue, and returns it, or nil.
func (q *queues) removeWaiter(key waiterKey) *waiter {
	w := q.get(key)
	if w == nil {
		return nil
	}
	delete(q.bySession[key.session], key.number)
	if len(q.bySession[key.session]) == 0 {
		delete(q.bySession, key.session)
	}
	delete(q.byHandle[w.owner()], w)
	if len(q.byHandle[w.owner()]) == 0 {
		delete(q.byHandle, w.owner())
	}
	delete(q.detecting, w)
	if o := w.lockOwner(); o.declared != "" {
		if delete(q.declared[o], w); len(q.declared[o]) == 0 {
			delete(q.declared, o)
		}
	}
	delete(q.outbox.requests, w)
	q.absent.Drop(w)
	q.used.add(w.who, -1)
	line, at := q.byName[w.lock.Name], q.at(w)
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		delete(q.byName, w.lock.Name)
	} else {
		q.byName[w.lock.Name] = line
	}
	return w
}

// answerWaiter removes a waiter and answers all its streams. It returns the waiter, or nil.
func (q *queues) answerWaiter(key waiterKey, a raftfsm.Answer) *waiter { return q.dismiss(key, a, nil) }

// failWaiter is answerWaiter with an error, without the log's answer.
func (q *queues) failWaiter(key waiterKey, err error) { q.dismiss(key, raftfsm.Answer{}, err) }

// dismiss does the work of answerWaiter and failWaiter. Others may have waited only for a waiter that leaves
// without the lock. No command frees a lock then, so the next tick offers it.
func (q *queues) dismiss(key waiterKey, a raftfsm.Answer, err error) *waiter {
	w := q.removeWaiter(key)
	if w == nil {
		return nil
	}
	w.answer, w.err = a, err
	close(w.done)
	if err != nil || a.Code() != api.OK {
		q.outbox.putLock(w.lock.Name)
	}
	return w
}

// detach ends a stream of a waiter. After the last one, its place is kept until keep.
func (q *queues) detach(w *waiter, keep session.Instant) {
	if w.streams = max(w.streams-1, 0); w.isAbsent() && q.get(w.key()) == w {
		q.absent.Put(w, keep)
	}
}

// dropAbsent drops at most most waiters with expired places, and reports whether there may be more. An
// offered one stays: its result is pending.
func (q *queues) dropAbsent(now session.Instant, most int) (more bool) {
	offered := map[*waiter]session.Instant{}
	w, end, some := q.absent.Next()
	for n := 0; n < most && some && end < now; n++ {
		if w.offered {
			q.absent.Drop(w)
			offered[w] = end
		} else {
			q.removeWaiter(w.key())
		}
		w, end, some = q.absent.Next()
	}
	for w, end := range offered {
		q.absent.Put(w, end)
	}
	return some && end < now
}

func (q *queues) at(w *waiter) int {
	line := q.byName[w.lock.Name]
	at, _ := slices.BinarySearchFunc(line, w.ticket, byTicket)
	for line[at] != w { // tickets are unique; even if not, this finds w itself
		at++
	}
	return at
}

// position returns a waiter's place, from 1, and how many wait.
func (q *queues) position(w *waiter) (place, waiting int) {
	return q.at(w) + 1, len(q.byName[w.lock.Name])
}

// inOrder yields the waiters of a lock in order, with the turns ahead of each: one a writer, one for
// consecutive readers, which share the lock.
func (q *queues) inOrder(name api.Name) iter.Seq2[int, *waiter] {
	return func(yield func(int, *waiter) bool) {
		ahead := -1
		var before api.LockMode
		for _, w := range q.byName[name] {
			if before == 0 || before.Conflicts(w.claim.Mode) {
				ahead++
			}
			before = w.claim.Mode
			if !yield(ahead, w) {
				return
			}
		}
	}
}

// maxSuccessors bounds the grants in one command.
const maxSuccessors = 128

// leading returns the waiters that could get the lock of a node beside holders in mode held (0: none): one
// writer, or all readers up to the first writer. It passes over skipped waiters (isSkipped), offered ones,
// and those for an earlier node of the name, which the log will refuse. No waiter overtakes an earlier
// writer. Waiters that do not fit in one command (maxSuccessors, limits.claims) get an offer when the
// observer has observed it.
func (q *queues) leading(lock namespace.Ref, held api.LockMode) []*waiter {
	var lead []*waiter
	bytes := 0
	for _, w := range q.byName[lock.Name] {
		if w.lock != lock || q.isSkipped(w) {
			continue
		}
		if held != 0 && w.claim.Mode.Conflicts(held) {
			break
		}
		held = w.claim.Mode
		if w.offered {
			continue
		}
		if bytes += w.size; len(lead) == maxSuccessors || len(lead) > 0 && bytes > q.claims {
			break
		}
		lead = append(lead, w)
	}
	return lead
}

func (q *queues) isSkipped(w *waiter) bool {
	return w.isAbsent() || w.refusal != nil || q.isClosing(w.owner())
}

// isClosing reports whether a Close of a handle is on its way. Its waiters get no offer then.
func (q *queues) isClosing(owner namespace.Owner) bool { return q.closing[owner] > 0 }

// endClosing records that a Close is no longer on its way, and reports whether it was the last.
func (q *queues) endClosing(owner namespace.Owner) (last bool) {
	if q.closing[owner]--; q.closing[owner] > 0 {
		return false
	}
	delete(q.closing, owner)
	return true
}

// firstAhead returns the first waiter that a newcomer with the lock in that mode would overtake, or nil.
func (q *queues) firstAhead(lock namespace.Ref, mode api.LockMode) *waiter {
	for _, w := range q.byName[lock.Name] {
		if w.lock == lock && !q.isSkipped(w) && w.claim.Mode.Conflicts(mode) {
			return w
		}
	}
	return nil
}

// ofSession yields a session's waiters, which may leave meanwhile.
func (q *queues) ofSession(id api.SessionID) iter.Seq[*waiter] { return maps.Values(q.bySession[id]) }

// ofHandle yields a handle's waiters, all for one lock. They may leave meanwhile.
func (q *queues) ofHandle(owner namespace.Owner) iter.Seq[*waiter] {
	return maps.Keys(q.byHandle[owner])
}

func (q *queues) ofOwner(o lockOwner) (list []*waiter) {
	if o.declared != "" {
		return slices.Collect(maps.Keys(q.declared[o]))
	}
	for _, w := range q.bySession[o.session] {
		if w.claim.DeclaredOwner == "" {
			list = append(list, w)
		}
	}
	return list
}

// ofNode returns the waiters for a node, the last first, so that removals move no others.
func (q *queues) ofNode(node namespace.Ref) []*waiter {
	var found []*waiter
	for _, w := range slices.Backward(q.byName[node.Name]) {
		if w.lock == node {
			found = append(found, w)
		}
	}
	return found
}

// stepsOf returns the steps of reading or changing a queue: that may pass many absent waiters, or move many.
func (q *queues) stepsOf(name api.Name) int { return 1 + len(q.byName[name])/64 }
