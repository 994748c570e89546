package session

import (
	"iter"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Table is the replicated table of sessions. R is the answer to a mutation; the
// table stores answers and does not read them. The zero Table is not usable;
// NewTable makes one. A copy is a snapshot, as with namespace.Tree: any number
// of goroutines may read it while one goroutine changes the original. A method
// that fails has changed nothing.
type Table[R any] struct {
	sessions *iradix.Tree[*Session[R]] // by key
	nonces   *iradix.Tree[api.SessionID]
	numbers  *iradix.Tree[int] // of sessions, by principal
}

// Session is one session's replicated record. A Session that is in a table
// never changes.
type Session[R any] struct {
	ID        api.SessionID `cbor:"1,keyasint"`
	Nonce     []byte        `cbor:"2,keyasint"` // the client's, so that a retried CreateSession finds it
	Principal string        `cbor:"3,keyasint,omitempty"`
	Host      string        `cbor:"4,keyasint,omitempty"` // shown to people
	PID       int           `cbor:"5,keyasint,omitempty"` // shown to people
	Lease     time.Duration `cbor:"6,keyasint"`           // the longest that any master may have granted
	MayCache  bool          `cbor:"7,keyasint,omitempty"`
	SinceUnix int64         `cbor:"8,keyasint,omitempty"` // for display only, never compared

	HighestIssued api.RequestNumber `cbor:"9,keyasint,omitempty"`  // the largest request number that its client is known to have used
	Open          []Request[R]      `cbor:"10,keyasint,omitempty"` // those up to HighestIssued that are not finished, ascending; at most api.MaxOutstanding

	Terminating *refusal.Intervention `cbor:"11,keyasint,omitempty"` // by whom and why the session is being terminated; nil if it is not
	Asked       time.Duration         `cbor:"12,keyasint"`           // the lease that its client asked for
}

// NewTable returns an empty table.
func NewTable[R any]() Table[R] {
	return Table[R]{sessions: iradix.New[*Session[R]](), nonces: iradix.New[api.SessionID](), numbers: iradix.New[int]()}
}

// Len returns the number of sessions.
func (t Table[R]) Len() int { return t.sessions.Len() }

// Of returns the number of a principal's sessions.
func (t Table[R]) Of(principal string) int {
	n, _ := t.numbers.Get([]byte(principal))
	return n
}

// Principals returns the principals that have sessions, by name, beginning
// behind the name after.
func (t Table[R]) Principals(after string) iter.Seq[string] {
	return func(yield func(string) bool) {
		i := t.numbers.Root().Iterator()
		i.SeekLowerBound([]byte(after))
		for k, _, ok := i.Next(); ok && (string(k) == after || yield(string(k))); k, _, ok = i.Next() {
		}
	}
}

// Get returns the session.
func (t Table[R]) Get(id api.SessionID) (*Session[R], bool) { return t.sessions.Get(key(id)) }

// ByNonce returns the session that a client created under that nonce. No
// session has the empty nonce.
func (t Table[R]) ByNonce(nonce []byte) (*Session[R], bool) {
	id, ok := t.nonces.Get(nonce)
	if !ok {
		return nil, false
	}
	return t.Get(id)
}

// All returns every session by id, as of the call: later changes of the table
// are not seen.
func (t Table[R]) All() iter.Seq[*Session[R]] { return t.From(0) }

// From returns the sessions with ids from first on, as All does.
func (t Table[R]) From(first api.SessionID) iter.Seq[*Session[R]] {
	return func(yield func(*Session[R]) bool) { // t is a copy
		i := t.sessions.Root().Iterator()
		i.SeekLowerBound(key(first))
		for _, s, ok := i.Next(); ok && yield(s); _, s, ok = i.Next() {
		}
	}
}

// Put adds a session, or one read from a snapshot, and replaces one of the same
// id. The table keeps s: the caller must not change it afterwards. The caller
// must make sure with ByNonce that no other session has the nonce; Check finds
// it if not.
func (t *Table[R]) Put(s *Session[R]) {
	t.End(s.ID) // the replaced record may have another nonce
	t.replace(s)
	t.count(s.Principal, 1)
	if len(s.Nonce) > 0 {
		t.nonces, _, _ = t.nonces.Insert(s.Nonce, s.ID)
	}
}

// RaiseLease raises the longest lease that a session may be granted; it never
// lowers it. The errors are SessionExpired, and InvalidArgument above
// api.MaxLease.
func (t *Table[R]) RaiseLease(id api.SessionID, lease time.Duration) error {
	if lease > api.MaxLease {
		return &refusal.Refusal{Cause: refusal.LeaseTooLong, Session: id, Length: lease}
	}
	s, ok := t.Get(id)
	if !ok {
		return unknownSession(id)
	}
	if lease > s.Lease {
		next := *s
		next.Lease = lease
		t.replace(&next)
	}
	return nil
}

// Terminate notes that another than its client ends a session, and why: from
// now on Begin refuses the session's requests. The errors are SessionExpired
// for an unknown session, and InvalidArgument if the reason is longer than
// api.MaxReason. A session that is terminating already keeps its first reason.
func (t *Table[R]) Terminate(id api.SessionID, by refusal.Intervention) error {
	s, ok := t.Get(id)
	switch {
	case !ok:
		return unknownSession(id)
	case len(by.Why) > api.MaxReason:
		return &refusal.Refusal{Cause: refusal.TerminationTooLong, Allowed: api.MaxReason}
	case s.Terminating != nil:
		return nil
	}
	next := *s
	next.Terminating = &by
	t.replace(&next)
	return nil
}

// End removes a session and reports whether it was there.
func (t *Table[R]) End(id api.SessionID) bool {
	sessions, s, ok := t.sessions.Delete(key(id))
	if !ok {
		return false
	}
	t.sessions = sessions
	t.count(s.Principal, -1)
	if owner, indexed := t.nonces.Get(s.Nonce); indexed && owner == id {
		t.nonces, _, _ = t.nonces.Delete(s.Nonce)
	}
	return true
}

func (t *Table[R]) count(principal string, more int) {
	n := t.Of(principal) + more
	if n == 0 {
		t.numbers, _, _ = t.numbers.Delete([]byte(principal))
		return
	}
	t.numbers, _, _ = t.numbers.Insert([]byte(principal), n)
}

// replace puts a record in the place of one with the same id and nonce.
func (t *Table[R]) replace(s *Session[R]) { t.sessions, _, _ = t.sessions.Insert(key(s.ID), s) }

// Check verifies the invariants of the table, for tests and for snapshots that
// were just read. It returns the first problem as Corrupt.
func (t Table[R]) Check() error {
	nonces := 0
	principals := map[string]int{}
	for s := range t.All() {
		principals[s.Principal]++
		if err := s.check(); err != nil {
			return err
		}
		if len(s.Nonce) == 0 {
			continue
		}
		nonces++
		if found, ok := t.ByNonce(s.Nonce); !ok || found.ID != s.ID {
			return api.Errorf(api.Corrupt, "session %v is not found by its nonce: another has the same, or the index is wrong", s.ID)
		}
	}
	if nonces != t.nonces.Len() {
		return api.Errorf(api.Corrupt, "%d nonces are indexed and %d sessions have one", t.nonces.Len(), nonces)
	}
	i := t.numbers.Root().Iterator()
	for principal, n, ok := i.Next(); ok; principal, n, ok = i.Next() {
		if principals[string(principal)] != n {
			return api.Errorf(api.Corrupt, "%q is counted with %d sessions and has %d", principal, n, principals[string(principal)])
		}
		delete(principals, string(principal))
	}
	if len(principals) > 0 {
		return api.Errorf(api.Corrupt, "the sessions of %d principals are not counted", len(principals))
	}
	return nil
}

func (s *Session[R]) check() error {
	switch {
	case s.ID == 0:
		return api.Errorf(api.Corrupt, "a session has the number 0, which means none")
	case s.Lease <= 0 || s.Lease > api.MaxLease:
		return api.Errorf(api.Corrupt, "session %v may have a lease of %v, which is not between 0 and %v", s.ID, s.Lease, api.MaxLease)
	case s.HighestIssued > maxRequest:
		return api.Errorf(api.Corrupt, "session %v has heard of request %d, above %d", s.ID, s.HighestIssued, uint64(maxRequest))
	case len(s.Open) > api.MaxOutstanding:
		return api.Errorf(api.Corrupt, "session %v has %d open requests, more than %d", s.ID, len(s.Open), api.MaxOutstanding)
	}
	var previous api.RequestNumber
	for _, r := range s.Open {
		if r.Number <= previous || r.Number > s.HighestIssued {
			return api.Errorf(api.Corrupt, "session %v has request %d open after %d: want them ascending, from 1 to %d", s.ID, r.Number, previous, s.HighestIssued)
		}
		previous = r.Number
	}
	return nil
}

// key is a session's key in the table: the half-bytes of its number, the
// highest first, so that keys are in the order of the numbers. A change copies
// every node on the way to the key. With whole bytes a node has up to 256
// children, and a mutation among 100,000 sessions takes three times as long.
func key(id api.SessionID) []byte {
	k := make([]byte, 16)
	for i := range k {
		k[i] = byte(id>>(60-4*i)) & 0xf
	}
	return k
}

func unknownSession(id api.SessionID) error {
	return &refusal.Refusal{Cause: refusal.SessionUnknown, Session: id}
}
