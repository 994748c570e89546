package tables

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/steps"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// LockRequest is what a client asks of a lock.
type LockRequest struct {
	Claim   raftfsm.Claim // for the log
	Ticket  Ticket        // of its place, or of an earlier one; zero if it had none
	Waited  time.Duration // at earlier masters, as the client says; for people
	Detects bool          // answer Deadlock if it waits for itself (waitGraph); needs raftfsm.DeadlockLevel
	Quiet   bool          // no holder's program learns that it waits (api.EventConflictingLock)
}

// Waiter is one Acquire in the queue of a lock.
type Waiter struct {
	LockRequest
	Lock    namespace.Ref
	Who     string          // its principal
	Since   session.Instant // by the client's count, if it waited before a fail-over
	Offered bool            // a command that may grant it is on its way
	Doubt   bool            // such a command had no answer, and may be in the log
	Size    int             // bytes of its claim in the log
	Told    bool            // holders were told while it waited; see tellConflicts
	Streams int             // of copies of its request; its client may hear any of them; see IsAbsent

	Done   chan struct{}  // closed when it has left the queue
	Answer raftfsm.Answer // once done is closed, if err is nil
	Err    error          // why the log did not answer; once done is closed

	Request  steps.RequestID   // of the first call
	Trace    string            // likewise; "" if it is not traced
	Granting session.Instant   // when its granting command was handed over
	Entry    *steps.EntryTimes // that answered it; once done is closed

	Refusal *refusal.Refusal // that the log is asked to record, or nil
}

// WaiterKey names a waiter by its request.
type WaiterKey struct {
	Session api.SessionID
	Number  api.RequestNumber
}

// Abandoned returns the error for a waiter that this master gives up because of err. A pending command may
// still grant it the lock.
func (w *Waiter) Abandoned(err error) error {
	if !w.Offered && !w.Doubt {
		return err
	}
	return &api.Error{
		Code: api.Uncertain, Err: err,
		Message: "the lock may or may not be granted, for the log was being asked about it; a retry with the same request number finds out",
	}
}

// Key names a waiter.
func (w *Waiter) Key() WaiterKey {
	return WaiterKey{Session: w.Claim.Mutation.Session, Number: w.Claim.Mutation.Number}
}

// IsAbsent reports whether a waiter has no stream: its place is kept, and skipped (decision 8).
func (w *Waiter) IsAbsent() bool { return w.Streams == 0 }

// LockOwner owns locks and requests: a session, or an owner that sessions of one principal declare. Its work
// counts as one sequence: while one of its requests waits, it releases nothing.
type LockOwner struct {
	session   api.SessionID // 0 if declared
	principal string        // of a declared one, so that no other principal can use it
	declared  string
}

// OwnerOf returns the owner that a session declares, or else the session.
func OwnerOf(session api.SessionID, principal, declared string) LockOwner {
	if declared == "" {
		return LockOwner{session: session}
	}
	return LockOwner{principal: principal, declared: declared}
}

// LockOwner returns the owner for which a request waits.
func (w *Waiter) LockOwner() LockOwner {
	return OwnerOf(w.Claim.Mutation.Session, w.Who, w.Claim.DeclaredOwner)
}

// Queues is the wait queues of all locks, in ticket order. Each question has an index: by lock, by session, by
// handle, and absent waiters by the ends of their places. No method visits all waiters of the cell, or of a
// session, which may have its whole quota.
type Queues struct {
	ByName    map[api.Name][]*Waiter
	BySession map[api.SessionID]map[api.RequestNumber]*Waiter
	byHandle  map[namespace.Owner]map[*Waiter]bool
	declared  map[LockOwner]map[*Waiter]bool // by declared owner
	Detecting map[*Waiter]bool               // want an answer if they wait for themselves
	Absent    session.Timetable[*Waiter]     // by the ends of their places
	outbox    *Outbox                        // locks and requests to look at again
	issued    uint64                         // tickets of this epoch
	Used      Tally                          // waiters
	Closing   map[namespace.Owner]int        // Closes on their way to the log
	Claims    int                            // max bytes that Leading returns
}

func newQueues(out *Outbox, claims int) *Queues {
	return &Queues{
		ByName: map[api.Name][]*Waiter{}, BySession: map[api.SessionID]map[api.RequestNumber]*Waiter{},
		byHandle: map[namespace.Owner]map[*Waiter]bool{},
		declared: map[LockOwner]map[*Waiter]bool{}, Detecting: map[*Waiter]bool{},
		outbox: out, Used: newTally(), Closing: map[namespace.Owner]int{},
		Claims: claims,
	}
}

// Get returns a waiter, or nil.
func (q *Queues) Get(key WaiterKey) *Waiter { return q.BySession[key.Session][key.Number] }

// Join queues a request, or returns the waiter with its kept place. Tickets of an earlier epoch keep their
// order. allowed is the principal's quota. After a fail-over newcomers may come first, so returning requests
// have twice the places.
func (q *Queues) Join(w *Waiter, epoch api.Epoch, allowed int) (*Waiter, error) {
	if kept := q.Get(w.Key()); kept != nil {
		if kept.IsAbsent() { // a new holder was not told
			kept.Told = false
			q.Absent.Drop(kept)
		}
		kept.Streams++
		return kept, nil
	}
	line := q.ByName[w.Lock.Name]
	waiting, used := len(line), q.Used.Of[w.Who]
	back := w.Ticket != (Ticket{}) && w.Ticket.Epoch < epoch
	if back {
		waiting, used = waiting/2, used/2
	}
	if waiting >= api.MaxWaiters {
		return nil, &refusal.Refusal{Cause: refusal.LockWaiters, Used: int64(len(line)), Allowed: api.MaxWaiters}
	}
	if used >= allowed {
		return nil, &refusal.Refusal{Cause: refusal.WaiterQuota, Principal: w.Who, Used: int64(q.Used.Of[w.Who]), Allowed: int64(allowed)}
	}
	q.Used.add(w.Who, 1)
	if !back {
		q.issued++
		w.Ticket = Ticket{Epoch: epoch, Number: q.issued}
	}
	w.Streams = 1
	w.Done = make(chan struct{})
	at, _ := slices.BinarySearchFunc(line, w.Ticket, byTicket)
	q.ByName[w.Lock.Name] = slices.Insert(line, at, w)
	key := w.Key()
	if q.BySession[key.Session] == nil {
		q.BySession[key.Session] = map[api.RequestNumber]*Waiter{}
	}
	q.BySession[key.Session][key.Number] = w
	if q.byHandle[w.Claim.By()] == nil {
		q.byHandle[w.Claim.By()] = map[*Waiter]bool{}
	}
	q.byHandle[w.Claim.By()][w] = true
	if w.Detects {
		q.Detecting[w] = true
	}
	if w.Claim.DeclaredOwner != "" {
		o := w.LockOwner()
		if q.declared[o] == nil {
			q.declared[o] = map[*Waiter]bool{}
		}
		q.declared[o][w] = true
	}
	return w, nil
}

func byTicket(w *Waiter, t Ticket) int {
	switch {
	case w.Ticket.Before(t):
		return -1
	case t.Before(w.Ticket):
		return 1
	}
	return 0
}

// RemoveWaiter takes a waiter out of its queue, and returns it, or nil.
func (q *Queues) RemoveWaiter(key WaiterKey) *Waiter {
	w := q.Get(key)
	if w == nil {
		return nil
	}
	delete(q.BySession[key.Session], key.Number)
	if len(q.BySession[key.Session]) == 0 {
		delete(q.BySession, key.Session)
	}
	delete(q.byHandle[w.Claim.By()], w)
	if len(q.byHandle[w.Claim.By()]) == 0 {
		delete(q.byHandle, w.Claim.By())
	}
	delete(q.Detecting, w)
	if w.Claim.DeclaredOwner != "" {
		o := w.LockOwner()
		if delete(q.declared[o], w); len(q.declared[o]) == 0 {
			delete(q.declared, o)
		}
	}
	delete(q.outbox.Requests, w)
	q.Absent.Drop(w)
	q.Used.add(w.Who, -1)
	line, at := q.ByName[w.Lock.Name], q.index(w)
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		delete(q.ByName, w.Lock.Name)
	} else {
		q.ByName[w.Lock.Name] = line
	}
	return w
}

// AnswerWaiter removes a waiter and answers all its streams. It returns the waiter, or nil.
func (q *Queues) AnswerWaiter(key WaiterKey, a raftfsm.Answer) *Waiter { return q.dismiss(key, a, nil) }

// FailWaiter is AnswerWaiter with an error, without the log's answer.
func (q *Queues) FailWaiter(key WaiterKey, err error) { q.dismiss(key, raftfsm.Answer{}, err) }

// dismiss does the work of AnswerWaiter and FailWaiter. Others may have waited only for a waiter that leaves
// without the lock. No command frees a lock then, so the next tick offers it.
func (q *Queues) dismiss(key WaiterKey, a raftfsm.Answer, err error) *Waiter {
	w := q.RemoveWaiter(key)
	if w == nil {
		return nil
	}
	w.Answer, w.Err = a, err
	close(w.Done)
	if err != nil || a.Code() != api.OK {
		q.outbox.PutLock(w.Lock.Name)
	}
	return w
}

// Detach ends a stream of a waiter. After the last one, its place is kept until keep.
func (q *Queues) Detach(w *Waiter, keep session.Instant) {
	if w.Streams = max(w.Streams-1, 0); w.IsAbsent() && q.Get(w.Key()) == w {
		q.Absent.Put(w, keep)
	}
}

// DropAbsent drops at most most waiters with expired places, and reports whether there may be more. An
// offered one stays: its result is pending.
func (q *Queues) DropAbsent(now session.Instant, most int) (more bool) {
	offered := map[*Waiter]session.Instant{}
	w, end, some := q.Absent.Next()
	for n := 0; n < most && some && end < now; n++ {
		if w.Offered {
			q.Absent.Drop(w)
			offered[w] = end
		} else {
			q.RemoveWaiter(w.Key())
		}
		w, end, some = q.Absent.Next()
	}
	for w, end := range offered {
		q.Absent.Put(w, end)
	}
	return some && end < now
}

func (q *Queues) index(w *Waiter) int {
	line := q.ByName[w.Lock.Name]
	at, _ := slices.BinarySearchFunc(line, w.Ticket, byTicket)
	for line[at] != w { // tickets are unique; even if not, this finds w itself
		at++
	}
	return at
}

// Position returns a waiter's place, from 1, and how many wait.
func (q *Queues) Position(w *Waiter) (place, waiting int) {
	return q.index(w) + 1, len(q.ByName[w.Lock.Name])
}

// InOrder yields the waiters of a lock in order, with the turns ahead of each: one a writer, one for
// consecutive readers, which share the lock.
func (q *Queues) InOrder(name api.Name) iter.Seq2[int, *Waiter] {
	return func(yield func(int, *Waiter) bool) {
		ahead := -1
		var before api.LockMode
		for _, w := range q.ByName[name] {
			if before == 0 || before.Conflicts(w.Claim.Mode) {
				ahead++
			}
			before = w.Claim.Mode
			if !yield(ahead, w) {
				return
			}
		}
	}
}

// maxSuccessors bounds the grants in one command.
const maxSuccessors = 128

// Leading returns the waiters that could get the lock of a node beside holders in mode held (0: none): one
// writer, or all readers up to the first writer. It passes over skipped waiters (IsSkipped), offered ones,
// and those for an earlier node of the name, which the log will refuse. No waiter overtakes an earlier
// writer. Waiters that do not fit in one command (maxSuccessors, limits.claims) get an offer when the
// observer has observed it.
func (q *Queues) Leading(lock namespace.Ref, held api.LockMode) []*Waiter {
	var lead []*Waiter
	bytes := 0
	for _, w := range q.ByName[lock.Name] {
		if w.Lock != lock || q.IsSkipped(w) {
			continue
		}
		if held != 0 && w.Claim.Mode.Conflicts(held) {
			break
		}
		held = w.Claim.Mode
		if w.Offered {
			continue
		}
		if bytes += w.Size; len(lead) == maxSuccessors || len(lead) > 0 && bytes > q.Claims {
			break
		}
		lead = append(lead, w)
	}
	return lead
}

// IsSkipped reports whether others may pass a waiter: it is absent or refused, or its handle is being closed.
func (q *Queues) IsSkipped(w *Waiter) bool {
	return w.IsAbsent() || w.Refusal != nil || q.IsClosing(w.Claim.By())
}

// IsClosing reports whether a Close of a handle is on its way. Its waiters get no offer then.
func (q *Queues) IsClosing(owner namespace.Owner) bool { return q.Closing[owner] > 0 }

// EndClosing records that a Close is no longer on its way, and reports whether it was the last.
func (q *Queues) EndClosing(owner namespace.Owner) (last bool) {
	if q.Closing[owner]--; q.Closing[owner] > 0 {
		return false
	}
	delete(q.Closing, owner)
	return true
}

// FirstAhead returns the first waiter that a newcomer with the lock in that mode would overtake, or nil.
func (q *Queues) FirstAhead(lock namespace.Ref, mode api.LockMode) *Waiter {
	for _, w := range q.ByName[lock.Name] {
		if w.Lock == lock && !q.IsSkipped(w) && w.Claim.Mode.Conflicts(mode) {
			return w
		}
	}
	return nil
}

// OfSession yields a session's waiters, which may leave meanwhile.
func (q *Queues) OfSession(id api.SessionID) iter.Seq[*Waiter] { return maps.Values(q.BySession[id]) }

// OfHandle yields a handle's waiters, all for one lock. They may leave meanwhile.
func (q *Queues) OfHandle(owner namespace.Owner) iter.Seq[*Waiter] {
	return maps.Keys(q.byHandle[owner])
}

// OfNode returns the waiters for a node, the last first, so that removals move no others.
func (q *Queues) OfNode(node namespace.Ref) []*Waiter {
	var found []*Waiter
	for _, w := range slices.Backward(q.ByName[node.Name]) {
		if w.Lock == node {
			found = append(found, w)
		}
	}
	return found
}

// StepsOf returns the steps of reading or changing a queue: that may pass many absent waiters, or move many.
func (q *Queues) StepsOf(name api.Name) int { return 1 + len(q.ByName[name])/64 }
