package api

import "time"

// Holding is the time for which somebody held a lock, from its grant to its end. Tokens, and the number at which
// it ended, are of the cell's one fencing counter: they say what came after what. The times are for people.
type Holding struct {
	Session    SessionID     `cbor:"1,keyasint"`
	Principal  string        `cbor:"2,keyasint,omitempty"`
	Host       string        `cbor:"3,keyasint,omitempty"`
	PID        int           `cbor:"4,keyasint,omitempty"`
	Mode       LockMode      `cbor:"5,keyasint"`
	Generation Generation    `cbor:"6,keyasint"`                      // the token
	Until      Generation    `cbor:"7,keyasint,omitempty"`            // the cell's counter when it had ended: the token of every later grant is larger; 0 while it goes on
	FromUnix   int64         `cbor:"8,keyasint,omitempty"`            // the wall clock of the master at the grant; for display only, never compared
	ToUnix     int64         `cbor:"9,keyasint,omitempty"`            // and at the end
	End        EndReason     `cbor:"10,keyasint,omitempty"`           // why it ended; 0 while it goes on
	Delay      time.Duration `cbor:"11,keyasint,omitempty"`           // the lock-delay that its end began (Chubby §2.4); 0 if it began none
	Reason     string        `cbor:"12,keyasint,omitempty"`           // why the lock was taken, in the holder's own words
	EndedBy    string        `cbor:"13,keyasint,omitempty" since:"3"` // the principal that broke the lock or ended the session; empty if nobody did
	EndedWhy   string        `cbor:"14,keyasint,omitempty" since:"3"` // and why, in its own words
}

// Together reports whether two holdings of one lock were not one after the other although one of them was exclusive.
// Of the holdings of a cell no two ever were: who finds some has found a fault. Tokens decide, and no clock.
func (h Holding) Together(other Holding) bool {
	first, second := h, other
	if first.Generation > second.Generation {
		first, second = second, first
	}
	shared := first.Mode == Shared && second.Mode == Shared
	apart := first.Generation < second.Generation && first.Until != 0 && first.Until < second.Generation
	return !shared && !apart
}
