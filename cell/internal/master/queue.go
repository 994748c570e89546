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
	since   session.Instant // by the client's count, if it had waited before a fail-over
	absent  bool            // no stream stands for it any more: its place is kept, and skipped (decision 8)
	keep    session.Instant // until when an absent one's place is kept
	heaped  int             // its place in queues.absent, while it is absent
	offered bool            // a command that may grant it is on its way
	doubt   bool            // such a command may be in the log, or not: it was left without an answer
	size    int             // bytes of its claim in the log
	detects bool            // it wants to be told if it waits for itself; see waitGraph
	quiet   bool            // no program that holds the lock is told that it waits
	told    bool            // those who hold the lock were told of it while it waited; see tellConflicts
	streams int             // that stand for it: copies of its request come in any order, and each of them may be the one that its client hears

	done   chan struct{}  // closed when it is out of the queue, for every stream that stands for it
	answer raftfsm.Answer // once done is closed, unless there is an err
	err    error          // why there is no answer of the log; once done is closed

	request  steps.RequestID // of the call that came first
	trace    steps.Trace     // the same; nil if it is not traced
	granting session.Instant // when a command was handed over that was to grant it, if calls are traced
	entry    *entry          // that has answered it, if calls are traced; once done is closed

	refusal *refusal.Refusal // what the log is being asked to answer it; nil if nothing refuses it
}

// waiterKey names a waiter: one request.
type waiterKey struct {
	session api.SessionID
	number  api.RequestNumber
}

// abandoned is the error of a waiter that this master answers no more, because of err. If
// the log was asked to grant it the lock, and has not answered, that may yet be done.
func (w *waiter) abandoned(err error) error {
	if !w.offered && !w.doubt {
		return err
	}
	return &api.Error{Code: api.Uncertain, Message: "the lock may or may not be granted, for the log was being asked about it; a retry with the same request number finds out", Err: err}
}

func (w *waiter) key() waiterKey {
	return waiterKey{session: w.claim.Mutation.Session, number: w.claim.Mutation.Number}
}

// owner is the handle that the lock is wanted for.
func (w *waiter) owner() namespace.Owner {
	return namespace.Owner{Session: w.claim.Mutation.Session, Handle: w.claim.Handle}
}

// queues is the wait queues of all locks, each in the order of its tickets. It
// holds no lock and reads no clock; epoch.mu guards it.
//
// Every question is answered by an index: those of one lock, those of one
// session, those who wait through one handle, and the absent ones by when their
// places end. No method goes through all waiters of the cell, or of a session, which
// may have as many as its quota.
type queues struct {
	byName    map[api.Name][]*waiter
	bySession map[api.SessionID]map[api.RequestNumber]*waiter
	byHandle  map[namespace.Owner]map[*waiter]bool
	declared  map[lockOwner]map[*waiter]bool // those who wait for an owner that they declare
	detecting map[*waiter]bool               // those who want to be told if they wait for themselves
	absent    absentees
	outbox    *outbox                 // of locks and requests that are to be looked at again
	issued    uint64                  // tickets of this epoch
	used      tally                   // waiters
	closing   map[namespace.Owner]int // Closes that are on their way to the log, by handle
	claims    int                     // bytes of the claims that leading returns at most; see limits
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

// get returns a waiter that is in a queue; nil if it is in none.
func (q *queues) get(key waiterKey) *waiter { return q.bySession[key.session][key.number] }

// join puts a request into the queue of its lock, or gives it back the place it
// has kept. A ticket of an earlier epoch keeps its order. Its principal may have
// allowed waiters. Who comes first after a fail-over may be new: so those who come back
// have as many places again, which newcomers do not get.
func (q *queues) join(w *waiter, epoch api.Epoch, allowed int) (*waiter, error) {
	if kept := q.get(w.key()); kept != nil {
		if kept.absent { // whoever has got the lock meanwhile was not told of it
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

// removeWaiter takes a waiter out of its queue; nil if it is in none.
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

// answerWaiter takes a waiter out of its queue and answers every stream that stands for
// it; it returns the waiter, nil if there is none.
func (q *queues) answerWaiter(key waiterKey, a raftfsm.Answer) *waiter { return q.dismiss(key, a, nil) }

// failWaiter is finish for a waiter that the log does not answer.
func (q *queues) failWaiter(key waiterKey, err error) { q.dismiss(key, raftfsm.Answer{}, err) }

// dismiss is finish and fail. Of a waiter that leaves without the lock those behind it may
// have waited only for that, and no lock becomes free by it that would be offered to them:
// the next tick does that.
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

// detach notes that one of a waiter's streams is broken. If that was the last one, its
// place is kept until keep.
func (q *queues) detach(w *waiter, keep session.Instant) {
	if w.streams--; w.streams <= 0 && q.get(w.key()) == w {
		q.absent.put(w, keep)
	}
}

// dropAbsent drops waiters that stayed away for too long, at most most of them, and
// reports whether there may be more. One that was offered its lock stays: what
// becomes of the offer is not known yet.
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

// at returns the index of a waiter in its line.
func (q *queues) at(w *waiter) int {
	line := q.byName[w.lock.Name]
	at, _ := slices.BinarySearchFunc(line, w.ticket, byTicket)
	for line[at] != w { // no two have the same ticket; if they had, no other would be taken out
		at++
	}
	return at
}

// position returns where a waiter stands, from 1, and how many wait.
func (q *queues) position(w *waiter) (place, waiting int) {
	return q.at(w) + 1, len(q.byName[w.lock.Name])
}

// inOrder yields those who wait for a lock, in their order, each with the turns that
// those before will take: one for each writer, and one for readers in a row, who
// hold the lock together.
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

// leading returns those at the head of the queue who could have the lock of that
// node together with holders in that mode (0: nobody holds it): one writer, or all
// readers up to the first writer. The absent are skipped, and so are those who wait
// for an earlier node of the same name, which is gone: the log is being asked to tell
// them. Nobody overtakes an
// earlier writer, and nobody is offered a lock twice. Whoever has no room in one
// command (maxSuccessors, limits.claims) is offered the lock by pump when that has
// been observed.
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

// isSkipped reports whether a waiter is passed over for now.
func (q *queues) isSkipped(w *waiter) bool {
	return w.absent || w.refusal != nil || q.isClosing(w.owner())
}

// isClosing reports whether a Close of a handle is on its way. Until none is, those who
// wait through the handle are offered nothing.
func (q *queues) isClosing(owner namespace.Owner) bool { return q.closing[owner] > 0 }

// endClosing notes that a Close of a handle is not on its way any more, and reports whether
// it was the last.
func (q *queues) endClosing(owner namespace.Owner) (last bool) {
	if q.closing[owner]--; q.closing[owner] > 0 {
		return false
	}
	delete(q.closing, owner)
	return true
}

// firstAhead returns the first in the queue who would be overtaken by a newcomer that
// got the lock of that node in that mode; nil if there is none.
func (q *queues) firstAhead(lock namespace.Ref, mode api.LockMode) *waiter {
	for _, w := range q.byName[lock.Name] {
		if w.lock == lock && !q.isSkipped(w) && w.claim.Mode.Conflicts(mode) {
			return w
		}
	}
	return nil
}

// ofSession yields the waiters of a session, which may leave meanwhile.
func (q *queues) ofSession(id api.SessionID) iter.Seq[*waiter] { return maps.Values(q.bySession[id]) }

// ofHandle yields those who wait through a handle, and so for one lock. They may leave
// meanwhile.
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

// ofNode returns the waiters for a node, the last in the queue first, so that to
// take them out one after the other moves nobody up.
func (q *queues) ofNode(node namespace.Ref) []*waiter {
	var found []*waiter
	for _, w := range slices.Backward(q.byName[node.Name]) {
		if w.lock == node {
			found = append(found, w)
		}
	}
	return found
}

// stepsOf is the steps that a look at the queue of a lock, or a change of it, takes: it
// may pass many who are absent, or move many up.
func (q *queues) stepsOf(name api.Name) int { return 1 + len(q.byName[name])/64 }

// lockOwner is for whom locks are asked for and held: a session, or an owner that sessions
// of one principal declare. Everything that is done for one owner is taken to be one
// sequence of work: while one of its requests waits, none of its locks is given back.
type lockOwner struct {
	session   api.SessionID // 0 of a declared one
	principal string        // of a declared one, so that nobody else can speak for it
	declared  string
}
