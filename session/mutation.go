package session

import (
	"cmp"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Request is one mutation that its client may still retry.
type Request[R any] struct {
	Number api.RequestNumber `cbor:"1,keyasint"`
	Done   bool              `cbor:"2,keyasint,omitempty"`
	Hash   uint64            `cbor:"3,keyasint,omitempty"` // of the request, once Done
	Answer R                 `cbor:"4,keyasint,omitempty"` // once Done
}

// Mutation is how a client numbers a change, so that it happens exactly once,
// however often the client sends it, in whatever order copies arrive, and at
// whichever master.
//
// It also carries a declaration: of all numbers up to HighestIssued, the client
// still wants the answers to Outstanding. The others are finished permanently:
// the table need not keep their answers, and must never do a late copy of one.
type Mutation struct {
	Session       api.SessionID       `cbor:"1,keyasint"`
	Number        api.RequestNumber   `cbor:"2,keyasint"`
	HighestIssued api.RequestNumber   `cbor:"3,keyasint"`           // the largest number used when this was sent
	Outstanding   []api.RequestNumber `cbor:"4,keyasint,omitempty"` // those up to HighestIssued whose answers are still wanted, Number among them, ascending
	Hash          uint64              `cbor:"5,keyasint"`           // of the request, so that a number is not used for two of them; 0 matches any, for a request that is to be withdrawn
}

// maxRequest is the largest request number. A handle's ID is the number of the
// request that made it, and JSON must carry it exactly.
const maxRequest api.RequestNumber = api.MaxGeneration

// Validate returns InvalidArgument for a Mutation outside its limits, and
// QuotaExceeded for one with too many outstanding numbers. It does not check
// whether the session exists.
func (m Mutation) Validate() error {
	if len(m.Outstanding) > api.MaxOutstanding {
		return &refusal.Refusal{Cause: refusal.TooManyOutstanding, Request: m.Number, Used: int64(len(m.Outstanding)), Allowed: api.MaxOutstanding}
	}
	if m.HighestIssued > maxRequest {
		return &refusal.Refusal{Cause: refusal.RequestsExhausted, Request: m.Number, HighestIssued: m.HighestIssued, Allowed: int64(maxRequest)}
	}
	var previous api.RequestNumber
	for _, n := range m.Outstanding {
		if n <= previous || n > m.HighestIssued {
			return &refusal.Refusal{
				Cause:         refusal.OutstandingUnordered,
				Request:       m.Number,
				Listed:        n,
				Previous:      previous,
				HighestIssued: m.HighestIssued,
			}
		}
		previous = n
	}
	if _, listed := slices.BinarySearch(m.Outstanding, m.Number); !listed {
		return &refusal.Refusal{Cause: refusal.OutstandingWithoutSelf, Request: m.Number}
	}
	return nil
}

// Begin notes which of the session's requests are finished and decides about m.
// If done is false, the caller does m and then calls Finish. If done is true,
// answer is what m was answered before. The errors are SessionExpired for an
// unknown or terminating session, InvalidArgument for a number that is finished
// or whose hash differs, and those of Validate. Finished numbers stay finished,
// in whatever order requests arrive: Begin refuses a copy that arrives after
// its answer was no longer wanted, and accepts a request that later ones have
// only overtaken.
//
// It takes O(n) for the larger number of outstanding requests, of m or of the
// session.
func (t *Table[R]) Begin(m Mutation) (answer R, done bool, err error) {
	if err := m.Validate(); err != nil {
		return answer, false, err
	}
	s, ok := t.sessions.Get(m.Session)
	if !ok {
		return answer, false, unknownSession(m.Session)
	}
	if s.Terminating != nil {
		return answer, false, &refusal.Refusal{Cause: refusal.SessionTerminating, Session: s.ID, By: s.Terminating}
	}
	var r Request[R]
	if i, open := find(s.Open, m.Number); open {
		r = s.Open[i]
	} else if m.Number <= s.HighestIssued {
		return answer, false, &refusal.Refusal{Cause: refusal.RequestFinished, Request: m.Number, Session: m.Session}
	}
	//mutants: same (only what is done has a hash)
	if r.Done && r.Hash != m.Hash && r.Hash != 0 && m.Hash != 0 {
		return answer, false, &refusal.Refusal{Cause: refusal.RequestReused, Request: m.Number, Session: m.Session}
	}
	t.declare(s, m)
	return r.Answer, r.Done, nil
}

// declare puts m's declaration into the record of its session. Then that has at most as many open
// requests as m.Outstanding, if m.HighestIssued is the largest so far, else at most as many as
// before: never more than api.MaxOutstanding.
func (t *Table[R]) declare(s *record[R], m Mutation) {
	finished := func(r Request[R]) bool {
		_, wanted := slices.BinarySearch(m.Outstanding, r.Number)
		return !wanted && r.Number <= m.HighestIssued // m says nothing about later numbers
	}
	before := s.HighestIssued
	//mutants: same (it saves a copy of the record)
	if m.HighestIssued <= before && !slices.ContainsFunc(s.Open, finished) {
		//mutants: same (it saves a copy of the record)
		return // nothing new
	}
	s = t.change(s)
	s.Open = slices.DeleteFunc(s.Open, finished)
	for _, n := range m.Outstanding {
		if n > before { // a lower one is open already, or finished permanently
			s.Open = append(s.Open, Request[R]{Number: n})
		}
	}
	s.HighestIssued = max(before, m.HighestIssued)
}

// Finish stores the answer to a request that Begin accepted. For a number that
// is not open, or done already, it does nothing.
func (t *Table[R]) Finish(m Mutation, answer R) {
	s, ok := t.sessions.Get(m.Session)
	if !ok {
		return
	}
	i, ok := find(s.Open, m.Number)
	if !ok || s.Open[i].Done {
		return
	}
	t.change(s).Open[i] = Request[R]{Number: m.Number, Done: true, Hash: m.Hash, Answer: answer}
}

// find returns where a number is among open requests.
func find[R any](open []Request[R], number api.RequestNumber) (int, bool) {
	return slices.BinarySearchFunc(open, number, func(r Request[R], n api.RequestNumber) int {
		return cmp.Compare(r.Number, n)
	})
}
