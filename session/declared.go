package session

import (
	"slices"

	"github.com/chubbylock/chubby/api"
)

// Declared is what a client has declared with its requests: which of its
// numbers are finished (see Mutation). Table keeps the same, together with the
// answers, for requests that go through the log; Declared is for requests that
// need no log entry. The zero Declared knows of no request. It keeps at most
// api.MaxOutstanding numbers. It is not safe for concurrent use.
type Declared struct {
	highest api.RequestNumber
	open    []api.RequestNumber // those up to highest that are not finished, ascending
}

// Record notes the declaration of a valid mutation.
func (d *Declared) Record(m Mutation) {
	//mutants: same (only how much room is made)
	open := make([]api.RequestNumber, 0, max(len(d.open), len(m.Outstanding)))
	for _, n := range d.open {
		if _, wanted := slices.BinarySearch(m.Outstanding, n); wanted || n > m.HighestIssued { // m says nothing about later numbers
			open = append(open, n)
		}
	}
	for _, n := range m.Outstanding {
		if n > d.highest { // a lower one is open already, or finished permanently
			open = append(open, n)
		}
	}
	d.highest, d.open = max(d.highest, m.HighestIssued), open
}

// Finished reports whether the client has finished with that number: a copy of
// the request that arrives now must do nothing.
func (d *Declared) Finished(n api.RequestNumber) bool {
	_, open := slices.BinarySearch(d.open, n)
	return n <= d.highest && !open
}
