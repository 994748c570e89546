package session

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/cowmap"
	"github.com/chubbylock/chubby/refusal"
)

// Table is the replicated table of sessions. R is the answer to a mutation; the
// table stores answers and does not read them. The zero Table is not usable;
// NewTable makes one. A copy is a snapshot, as with namespace.Tree: any number
// of goroutines may read it while one goroutine changes the original. A method
// that fails has changed nothing.
type Table[R any] struct {
	sessions cowmap.Map[api.SessionID, *record[R]]
	nonces   cowmap.Map[string, api.SessionID]
	numbers  cowmap.Map[string, int] // of sessions, by principal
	editor   *editor                 // nil unless Edit was called
}

// record is a session in a table.
type record[R any] struct {
	Session[R]
	editor *editor // who has made this record, and may change it; nil if nobody may
}

// editor is a table between two of its snapshots.
type editor struct{ _ byte } // not empty, so that each has an address of its own

// Session is one session's replicated record. A Session that is in a table never changes,
// unless Edit was called and no snapshot has been taken since it came there: do not keep a
// record of such a table after its next change.
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

	CacheLease bool `cbor:"13,keyasint,omitempty" since:"2"` // it uses what it has cached only under cache leases
}

// NewTable returns an empty table.
func NewTable[R any]() Table[R] {
	return Table[R]{
		sessions: cowmap.New[api.SessionID, *record[R]](cmp.Less[api.SessionID]),
		nonces:   cowmap.New[string, api.SessionID](cmp.Less[string]),
		numbers:  cowmap.New[string, int](cmp.Less[string]),
	}
}

// Edit begins a time in which changes are made in place, which is cheaper: meanwhile the table
// must not be copied. Settle ends it. Snapshot takes a snapshot at any time.
func (t *Table[R]) Edit() { //mutants: same (changes in place only save copies)
	t.sessions.Edit()
	t.nonces.Edit()
	t.numbers.Edit()
	t.editor = new(editor)
}

// Settle ends what Edit began: a copy of the table is a snapshot again.
func (t *Table[R]) Settle() {
	t.sessions.Settle()
	t.nonces.Settle()
	t.numbers.Settle()
	t.editor = nil
}

// Snapshot returns the table as it is now.
func (t *Table[R]) Snapshot() Table[R] {
	if t.editor != nil {
		t.editor = new(editor) // the records that there are belong to the snapshot, too
	}
	return Table[R]{sessions: t.sessions.Snapshot(), nonces: t.nonces.Snapshot(), numbers: t.numbers.Snapshot()}
}

// Len returns the number of sessions.
func (t Table[R]) Len() int { return t.sessions.Len() }

// Of returns the number of a principal's sessions.
func (t Table[R]) Of(principal string) int {
	n, _ := t.numbers.Get(principal)
	return n
}

// Principals returns the principals that have sessions, by name, beginning
// behind the name after.
func (t Table[R]) Principals(after string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for principal := range t.numbers.From(after) {
			if principal != after && !yield(principal) {
				return
			}
		}
	}
}

// Get returns the session.
func (t Table[R]) Get(id api.SessionID) (*Session[R], bool) {
	s, ok := t.sessions.Get(id)
	if !ok {
		return nil, false
	}
	return &s.Session, true
}

// ByNonce returns the session that a client created under that nonce. No
// session has the empty nonce.
func (t Table[R]) ByNonce(nonce []byte) (*Session[R], bool) {
	id, ok := t.nonces.Get(string(nonce))
	//mutants: same (no session has the number 0)
	if !ok {
		return nil, false
	}
	return t.Get(id)
}

// All returns every session by id, as of the call: later changes of the table
// are not seen, unless Edit was called; then there must be none before the loop ends.
func (t Table[R]) All() iter.Seq[*Session[R]] { return t.From(0) }

// From returns the sessions with ids from first on, as All does.
func (t Table[R]) From(first api.SessionID) iter.Seq[*Session[R]] {
	return func(yield func(*Session[R]) bool) { // t is a copy
		for _, s := range t.sessions.From(first) {
			if !yield(&s.Session) {
				return
			}
		}
	}
}

// Put adds a session, or one read from a snapshot, and replaces one of the same
// id. The table keeps what s refers to: the caller must not change it afterwards. The caller
// must make sure with ByNonce that no other session has the nonce; Check finds
// it if not.
func (t *Table[R]) Put(s *Session[R]) {
	t.End(s.ID) // the replaced record may have another nonce
	t.sessions.Set(s.ID, &record[R]{Session: *s})
	t.count(s.Principal, 1)
	if len(s.Nonce) > 0 {
		t.nonces.Set(string(s.Nonce), s.ID)
	}
}

// RaiseLease raises the longest lease that a session may be granted; it never
// lowers it. The errors are SessionExpired, and InvalidArgument above
// api.MaxLease.
func (t *Table[R]) RaiseLease(id api.SessionID, lease time.Duration) error {
	if lease > api.MaxLease {
		return &refusal.Refusal{Cause: refusal.LeaseTooLong, Session: id, Length: lease}
	}
	s, ok := t.sessions.Get(id)
	if !ok {
		return unknownSession(id)
	}
	//mutants: same (an equal lease is set again)
	if lease > s.Lease {
		t.change(s).Lease = lease
	}
	return nil
}

// Terminate notes that another than its client ends a session, and why: from
// now on Begin refuses the session's requests. The errors are SessionExpired
// for an unknown session, and InvalidArgument if the reason is longer than
// api.MaxReason. A session that is terminating already keeps its first reason.
func (t *Table[R]) Terminate(id api.SessionID, by refusal.Intervention) error {
	s, ok := t.sessions.Get(id)
	switch {
	case !ok:
		return unknownSession(id)
	case len(by.Why) > api.MaxReason:
		return &refusal.Refusal{Cause: refusal.TerminationTooLong, Allowed: api.MaxReason}
	case s.Terminating != nil:
		return nil
	}
	t.change(s).Terminating = &by
	return nil
}

// End removes a session and reports whether it was there.
func (t *Table[R]) End(id api.SessionID) bool {
	s, ok := t.sessions.Delete(id)
	if !ok {
		return false
	}
	t.count(s.Principal, -1)
	//mutants: same (no session has the number 0)
	if owner, indexed := t.nonces.Get(string(s.Nonce)); indexed && owner == id {
		t.nonces.Delete(string(s.Nonce))
	}
	return true
}

func (t *Table[R]) count(principal string, more int) {
	n := t.Of(principal) + more
	if n == 0 {
		t.numbers.Delete(principal)
		return
	}
	t.numbers.Set(principal, n)
}

// change returns the record in the table that may be changed, its Open included: s itself, if it
// was made since the last snapshot, else a copy that takes its place.
func (t *Table[R]) change(s *record[R]) *record[R] {
	//mutants: same (it saves a copy of the record)
	if s.editor != nil && s.editor == t.editor {
		return s
	}
	next := *s
	//mutant: next.Open, next.editor = slices.Clip(s.Open), t.editor
	next.Open, next.editor = slices.Clone(s.Open), t.editor
	t.sessions.Set(s.ID, &next)
	return &next
}

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
	for principal, n := range t.numbers.All() {
		if principals[principal] != n {
			return api.Errorf(api.Corrupt, "%q is counted with %d sessions and has %d", principal, n, principals[principal])
		}
		delete(principals, principal)
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

func unknownSession(id api.SessionID) error {
	return &refusal.Refusal{Cause: refusal.SessionUnknown, Session: id}
}
