package misuse

import (
	"time"

	"github.com/chubbylock/chubby/api"
)

// Options say which findings are wanted; the zero value wants all.
type Options struct {
	Path      string        // at that node, or below it; "" for all, also those that are about no node
	Session   api.SessionID // of that session; 0 for all
	Principal string        // of that principal's sessions; "" for all
	Kinds     []Kind        // nil for all
	Most      int           // that are listed: at most api.MaxListed; 0 is 20
}

// Report is which clients misuse a cell, as the master of one epoch has seen it. What was seen longer ago than two Windows, or by
// an earlier master, is not in it.
type Report struct {
	Epoch    api.Epoch
	Since    time.Duration // for how long this master has counted
	Findings []Finding     // the worst first
	More     int           // besides those listed
}

// Finding is a misuse by one session, or by the sessions of one principal.
type Finding struct {
	Kind     Kind       // one that is not Known was found by a newer master
	Who      api.Holder `pb:"Party"` // without a Session: those of the Principal
	Path     string     // where it was last; "" if it is about no node
	Count    int
	Share    float64       // of all those that Count is a part of; 0 if it is no part of anything
	Measured time.Duration // in which they were counted
	Lease    time.Duration // that was asked for, if that is what is wrong
}

// PerSecond is how often it happened in a second, over the time measured.
func (f Finding) PerSecond() float64 {
	if f.Measured <= 0 {
		return 0
	}
	return float64(f.Count) / f.Measured.Seconds()
}
