package session

import (
	"slices"

	"github.com/chubbylock/chubby/api"
)

// Declared is what a client has declared with its requests (see Mutation): which
// of its numbers are finished. Table keeps the same with the answers, as far as
// requests go through the log; this is for those that need no entry. The zero
// Declared knows of no request. It takes at most api.MaxOutstanding numbers, and is
// for one goroutine at a time.
type Declared struct {
	highest api.RequestNumber
	open    []api.RequestNumber // those up to highest that are not finished, ascending
}

// Record takes note of the declaration of a valid mutation.
func (d *Declared) Record(m Mutation) {
	open := make([]api.RequestNumber, 0, max(len(d.open), len(m.Outstanding)))
	for _, n := range d.open {
		if _, wanted := slices.BinarySearch(m.Outstanding, n); wanted || n > m.HighestIssued { // of later numbers m knows nothing
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

// Finished reports whether the client has given up the answer to that number: a
// copy of the request that arrives now must do nothing.
func (d *Declared) Finished(n api.RequestNumber) bool {
	_, open := slices.BinarySearch(d.open, n)
	return n <= d.highest && !open
}
