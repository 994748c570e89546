package master

import (
	"iter"
	"maps"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// waiter is one Acquire in the queue of a lock.
type waiter struct {
	claim   raftfsm.Claim
	lock    namespace.Ref
	who     string // its principal
	ticket  Ticket
	since   session.Instant // by the client's count, if it waited before a fail-over
	absent  bool            // it has no stream: its place is kept, and skipped (decision 8)
	keep    session.Instant // end of an absent waiter's place
	heaped  int             // its index in queues.absent, while it is absent
	offered bool            // a command that may grant it is on its way
	doubt   bool            // such a command had no answer: it may be in the log
	size    int             // bytes of its claim in the log
	detects bool            // it wants an answer if it waits for itself; see waitGraph
	quiet   bool            // no holder's program learns that it waits
	told    bool            // the holders were told while it waited; see tellConflicts
	streams int             // open streams of copies of its request; its client may listen to any of them

	done   chan struct{}  // closed when it has left the queue, for every stream
	answer raftfsm.Answer // valid once done is closed, if err is nil
	err    error          // why the log gave no answer; valid once done is closed

	request  steps.RequestID // of the call that came first
	trace    steps.Trace     // of that call; nil if it is not traced
	granting session.Instant // when the command that grants it was handed over, if calls are traced
	entry    *entry          // the entry that answered it, if calls are traced; valid once done is closed

	refusal *refusal.Refusal // the refusal that the log is asked to record; nil if there is none
}

// waiterKey names a waiter: one request.
type waiterKey struct {
	session api.SessionID
	number  api.RequestNumber
}

// abandoned returns the error for a waiter that this master no longer answers because of err. A command with
// its claim that has no answer yet may still grant it the lock.
func (w *waiter) abandoned(err error) error {
	if !w.offered && !w.doubt {
		return err
	}
	return &api.Error{Code: api.Uncertain, Message: "the lock may or may not be granted, for the log was being asked about it; a retry with the same request number finds out", Err: err}
}

func (w *waiter) key() waiterKey {
	return waiterKey{session: w.claim.Mutation.Session, number: w.claim.Mutation.Number}
}

// owner returns the handle that wants the lock.
func (w *waiter) owner() namespace.Owner {
	return namespace.Owner{Session: w.claim.Mutation.Session, Handle: w.claim.Handle}
}

// queues is the wait queues of all locks, each in the order of its tickets. It holds no lock and reads no
// clock; epoch.mu guards it.
//
// An index answers each question: the waiters of a lock, of a session and of a handle, and the absent ones by
// the ends of their places. No method visits all waiters of the cell, or of a session, which may have as many
// as its quota.
type queues struct {
	byName    map[api.Name][]*waiter
	bySession map[api.SessionID]map[api.RequestNumber]*waiter
	byHandle  map[namespace.Owner]map[*waiter]bool
	declared  map[lockOwner]map[*waiter]bool // waiters of owners that they declare
	detecting map[*waiter]bool               // waiters that want an answer if they wait for themselves
	absent    absentees
	outbox    *outbox                 // locks and requests to look at again
	issued    uint64                  // tickets of this epoch
	used      tally                   // waiters
	closing   map[namespace.Owner]int // Closes on their way to the log, by handle
	claims    int                     // max bytes of the claims that leading returns; see limits
}

func newQueues(out *outbox) *queues {
	return &queues{
		byName: map[api.Name][]*waiter{}, bySession: map[api.SessionID]map[api.RequestNumber]*waiter{},
		byHandle: map[namespace.Owner]map[*waiter]bool{},
		declared: map[lockOwner]map[*waiter]bool{}, detecting: map[*waiter]bool{},
		outbox: out, used: newTally(), closing: map[namespace.Owner]int{},
		claims: defaultLimits().claims,
	}
}

// get returns a queued waiter, or nil.
func (q *queues) get(key waiterKey) *waiter { return q.bySession[key.session][key.number] }

// join puts a request into the queue of its lock, or returns the waiter whose place was kept. A ticket of an
// earlier epoch keeps its order. allowed limits the waiters of the principal. After a fail-over new requests
// may come first, so returning requests count the used places as half: they get as many places again,
// newcomers do not.
func (q *queues) join(w *waiter, epoch api.Epoch, allowed int) (*waiter, error) {
	if kept := q.get(w.key()); kept != nil {
		if kept.absent { // a holder that got the lock meanwhile was not told
			kept.told = false
			q.absent.drop(kept)
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

// removeWaiter takes a waiter out of its queue, and returns it; nil if it is not queued.
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
	q.absent.drop(w)
	q.used.add(w.who, -1)
	line, at := q.byName[w.lock.Name], q.at(w)
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		delete(q.byName, w.lock.Name)
	} else {
		q.byName[w.lock.Name] = line
	}
	return w
}

// answerWaiter takes a waiter out of its queue and answers all its streams. It returns the waiter, or nil.
func (q *queues) answerWaiter(key waiterKey, a raftfsm.Answer) *waiter { return q.dismiss(key, a, nil) }

// failWaiter is answerWaiter with an error instead of the log's answer.
func (q *queues) failWaiter(key waiterKey, err error) { q.dismiss(key, raftfsm.Answer{}, err) }

// dismiss does the work of answerWaiter and failWaiter. Waiters behind one that leaves without the lock may
// have waited only for it, and no command frees a lock for them, so the next tick offers it.
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

// detach records that a stream of a waiter has ended. After the last one, the place is kept until keep.
func (q *queues) detach(w *waiter, keep session.Instant) {
	if w.streams--; w.streams <= 0 && q.get(w.key()) == w {
		q.absent.put(w, keep)
	}
}

// dropAbsent drops at most most waiters whose places have expired, and reports whether there may be more. An
// offered waiter stays, because the result of the offer is pending.
func (q *queues) dropAbsent(now session.Instant, most int) (more bool) {
	var offered []*waiter
	for range most {
		if len(q.absent) == 0 || q.absent[0].keep >= now {
			break
		}
		w := q.absent[0]
		if w.offered {
			q.absent.drop(w)
			offered = append(offered, w)
			continue
		}
		q.removeWaiter(w.key())
	}
	more = len(q.absent) > 0 && q.absent[0].keep < now
	for _, w := range offered {
		q.absent.put(w, w.keep)
	}
	return more
}

// at returns the index of a waiter in its queue.
func (q *queues) at(w *waiter) int {
	line := q.byName[w.lock.Name]
	at, _ := slices.BinarySearchFunc(line, w.ticket, byTicket)
	for line[at] != w { // tickets are unique; if two were equal, this would still find w itself
		at++
	}
	return at
}

// position returns the place of a waiter, from 1, and how many wait.
func (q *queues) position(w *waiter) (place, waiting int) {
	return q.at(w) + 1, len(q.byName[w.lock.Name])
}

// inOrder yields the waiters of a lock in order, each with the number of turns ahead of it: one for each
// writer, and one for consecutive readers, which hold the lock together.
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

// leading returns the waiters at the head of a queue that could get the lock of a node together with holders
// in mode held (0: it has no holder): one writer, or all readers up to the first writer. It skips absent
// waiters, and waiters for an earlier node of the name, which the log is being asked to refuse. No waiter
// overtakes an earlier writer, and no waiter is offered a lock twice. For waiters beyond one command
// (maxSuccessors, limits.claims), the observer offers the lock again when it has observed that command.
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

// isSkipped reports whether the queue passes over a waiter for now.
func (q *queues) isSkipped(w *waiter) bool {
	return w.absent || w.refusal != nil || q.isClosing(w.owner())
}

// isClosing reports whether a Close of a handle is on its way. Until then waiters of the handle get no offer.
func (q *queues) isClosing(owner namespace.Owner) bool { return q.closing[owner] > 0 }

// endClosing records that a Close of a handle is no longer on its way, and reports whether it was the last.
func (q *queues) endClosing(owner namespace.Owner) (last bool) {
	if q.closing[owner]--; q.closing[owner] > 0 {
		return false
	}
	delete(q.closing, owner)
	return true
}

// firstAhead returns the first waiter that a newcomer with the lock of that node in that mode would overtake;
// nil if there is none.
func (q *queues) firstAhead(lock namespace.Ref, mode api.LockMode) *waiter {
	for _, w := range q.byName[lock.Name] {
		if w.lock == lock && !q.isSkipped(w) && w.claim.Mode.Conflicts(mode) {
			return w
		}
	}
	return nil
}

// ofSession yields the waiters of a session. They may leave meanwhile.
func (q *queues) ofSession(id api.SessionID) iter.Seq[*waiter] { return maps.Values(q.bySession[id]) }

// ofHandle yields the waiters of a handle, which all wait for one lock. They may leave meanwhile.
func (q *queues) ofHandle(owner namespace.Owner) iter.Seq[*waiter] {
	return maps.Keys(q.byHandle[owner])
}

// ofOwner returns the waiters for one owner.
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

// ofNode returns the waiters for a node, the last in the queue first, so that removing them one by one moves
// no others.
func (q *queues) ofNode(node namespace.Ref) []*waiter {
	var found []*waiter
	for _, w := range slices.Backward(q.byName[node.Name]) {
		if w.lock == node {
			found = append(found, w)
		}
	}
	return found
}

// stepsOf returns the steps of reading or changing the queue of a lock: it may pass many absent waiters, or
// move many.
func (q *queues) stepsOf(name api.Name) int { return 1 + len(q.byName[name])/64 }

// lockOwner is an owner of locks and requests: a session, or a name that sessions of one principal declare.
// The work of one owner counts as one sequence: while one of its requests waits, it gives no lock back.
type lockOwner struct {
	session   api.SessionID // 0 for a declared owner
	principal string        // of a declared owner, so that other principals cannot claim its name
	declared  string
}
