package session

import (
	"container/heap"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Leases keeps until when the master has promised each session of this epoch
// that it lives. It is not safe for concurrent use.
//
// A session goes ALIVE -> EXPIRING -> removed. It becomes EXPIRING before the
// master proposes its end, and is never extended again, even if the proposal
// fails: a client must not receive an extension after the cell has ended its
// session.
type Leases struct {
	sessions map[api.SessionID]*lease // ALIVE and EXPIRING
	alive    leaseQueue               // the ALIVE ones, as a heap
	granted  uint64                   // number of the latest grant
	unheard  int                      // those that are inherited
}

// lease is the lease of one session. It is EXPIRING once it is out of the
// queue.
type lease struct {
	id    api.SessionID
	end   Instant
	place int // in the queue, or expiring

	inherited bool // from the epoch before, and not extended since
}

// expiring is the place of a lease that has left the queue.
const expiring = -1

// NewLeases returns an empty set.
func NewLeases() *Leases {
	return &Leases{sessions: make(map[api.SessionID]*lease)}
}

// Inherit begins, on takeover, the lease of a session from the table, with the longest length that the
// predecessor may have granted. The caller must read from after its epoch began.
func (l *Leases) Inherit(id api.SessionID, length time.Duration, from Instant) {
	l.Start(id, length, from)
	l.sessions[id].inherited = true
	l.unheard++
}

// Unheard reports whether a session was inherited, and its client has not returned since.
func (l *Leases) Unheard(id api.SessionID) bool {
	s, known := l.sessions[id]
	return known && s.inherited
}

// CountUnheard returns how many sessions are unheard of.
func (l *Leases) CountUnheard() int { return l.unheard }

// hear notes that the client of a session has returned, or that the session has ended.
func (l *Leases) hear(s *lease) {
	if s.inherited {
		s.inherited = false
		l.unheard--
	}
}

// Start begins the lease of a new session. For a session that has a lease already, Start does what
// Grant does, without a number.
func (l *Leases) Start(id api.SessionID, length time.Duration, from Instant) {
	if s, known := l.sessions[id]; known {
		l.extend(s, length, from)
		return
	}
	s := &lease{id: id, end: from.Add(max(length, 0))}
	l.sessions[id] = s
	heap.Push(&l.alive, s)
}

// Grant extends a lease to [from, from+length] where from is the start of the
// leadership proof behind the grant. It returns the number of the grant,
// counting from 1, and false if the session is EXPIRING or unknown. An end
// never moves back: a shorter grant is valid and leaves the end where it is.
func (l *Leases) Grant(id api.SessionID, length time.Duration, from Instant) (number uint64, ok bool) {
	s, known := l.sessions[id]
	if !known || !l.extend(s, length, from) {
		return 0, false
	}
	l.granted++
	return l.granted, true
}

// Promise numbers a promise as Grant does, for what is left of a lease at an instant, at most
// limit. It moves no end. It is for a reply that repeats what a client has, and must not extend it.
// ok is false if the session is EXPIRING or unknown, or nothing is left.
func (l *Leases) Promise(id api.SessionID, limit time.Duration, from Instant) (number uint64, left time.Duration, ok bool) {
	s, known := l.sessions[id]
	if !known || s.place == expiring || s.end <= from {
		return 0, 0, false
	}
	l.granted++
	return l.granted, min(s.end.Sub(from), limit), true
}

// extend moves the end of an ALIVE lease to a later instant, never to an
// earlier one.
func (l *Leases) extend(s *lease, length time.Duration, from Instant) bool {
	if s.place == expiring {
		return false
	}
	l.hear(s)
	//mutants: same (an equal end is where it was)
	if end := from.Add(max(length, 0)); end > s.end {
		s.end = end
		heap.Fix(&l.alive, s.place)
	}
	return true
}

// Alive reports whether the session may still be extended.
func (l *Leases) Alive(id api.SessionID) bool {
	s, known := l.sessions[id]
	return known && s.place != expiring
}

// Stop makes a session EXPIRING, when its end is about to be proposed for
// another reason than its lease. It returns the end of the promise already
// given, which still binds the master: until then no other client may have what
// the session holds, unless the client asked for the end itself or has
// acknowledged it. ok is false for an unknown session only.
func (l *Leases) Stop(id api.SessionID) (end Instant, ok bool) {
	s, known := l.sessions[id]
	if !known {
		return 0, false
	}
	if s.place != expiring {
		heap.Remove(&l.alive, s.place)
	}
	return s.end, true
}

// Remove forgets a session that has ended.
func (l *Leases) Remove(id api.SessionID) {
	if _, known := l.Stop(id); known {
		l.hear(l.sessions[id])
		delete(l.sessions, id)
	}
}

// End returns until when the master has promised that the session lives.
func (l *Leases) End(id api.SessionID) (Instant, bool) {
	s, known := l.sessions[id]
	if !known {
		return 0, false
	}
	return s.end, true
}

// Len returns the number of sessions, ALIVE and EXPIRING.
func (l *Leases) Len() int { return len(l.sessions) }

// Tick makes those sessions EXPIRING whose leases have run out and returns them,
// at most limit of them, earliest first; the others are for the next Tick. It
// returns each session once: the caller proposes the end until the session or the
// epoch has ended.
//
// forgiven is what Pauses has found up to now. If it is more than 0, Tick extends every ALIVE lease
// by as much and expires no session: a client that could not reach the master has until the next Tick at least.
//
// It takes O(1) when nothing is due, O(log n) for each session returned, and
// O(n) after a pause.
func (l *Leases) Tick(now Instant, forgiven time.Duration, limit int) (expired []api.SessionID) {
	if forgiven > 0 {
		l.alive.delay(forgiven)
		return nil
	}
	for len(l.alive) > 0 && len(expired) < limit && l.alive[0].end <= now {
		s := heap.Pop(&l.alive).(*lease)
		expired = append(expired, s.id)
	}
	return expired
}

// Next returns when the earliest lease of an ALIVE session runs out.
func (l *Leases) Next() (Instant, bool) {
	if len(l.alive) == 0 {
		return 0, false
	}
	return l.alive[0].end, true
}

// leaseQueue is a heap of leases, the earliest end first. Its methods are those
// of heap.Interface; each lease knows its place.
type leaseQueue []*lease

// delay moves every end by the same time. That keeps their order, and so the
// heap, except where ends have become equal at the end of an Instant's range.
func (q *leaseQueue) delay(by time.Duration) {
	//mutants: same (to order the heap once more is only slower)
	equal := false
	for _, s := range *q {
		s.end = s.end.Add(by)
		//mutants: same (to order the heap once more is only slower)
		equal = equal || s.end == latest
	}
	//mutants: same (to order the heap once more is only slower)
	if equal {
		heap.Init(q)
	}
}

func (q leaseQueue) Len() int { return len(q) }

// Less orders equal ends by id, so that the result of Tick depends only on its
// arguments.
func (q leaseQueue) Less(i, j int) bool {
	//mutants: same (no two leases have one id)
	return q[i].end < q[j].end || q[i].end == q[j].end && q[i].id < q[j].id
}

func (q leaseQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for package heap.
func (q *leaseQueue) Push(x any) {
	s := x.(*lease)
	s.place = len(*q)
	*q = append(*q, s)
}

// Pop is for package heap. What it takes out is EXPIRING.
func (q *leaseQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	//mutants: same (only memory is given back)
	(*q)[last] = nil
	*q = (*q)[:last]
	s.place = expiring
	return s
}
