package refusal

import (
	"fmt"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Refusal is a negative answer. The comment of its Cause says which of the other fields are set. A
// Refusal that was returned or stored never changes. It is an error: errors.Is finds its code, and
// errors.As its *api.Error.
type Refusal struct {
	Cause Cause `cbor:"1,keyasint"`

	Name      api.Name      `cbor:"2,keyasint,omitempty"` // of the node
	List      api.Name      `cbor:"3,keyasint,omitempty"` // of the file of an access control list
	Path      string        `cbor:"4,keyasint,omitempty"` // as the caller gave it
	Kind      api.Kind      `cbor:"5,keyasint,omitempty"` // of the node
	Principal string        `cbor:"6,keyasint,omitempty"`
	Session   api.SessionID `cbor:"7,keyasint,omitempty"`
	By        *Intervention `cbor:"8,keyasint,omitempty"`

	Request       api.RequestNumber `cbor:"9,keyasint,omitempty"`
	Listed        api.RequestNumber `cbor:"10,keyasint,omitempty"` // a number listed as outstanding
	Previous      api.RequestNumber `cbor:"11,keyasint,omitempty"` // the number listed before it
	HighestIssued api.RequestNumber `cbor:"12,keyasint,omitempty"`

	Epoch        api.Epoch      `cbor:"13,keyasint,omitempty"` // of the command
	CurrentEpoch api.Epoch      `cbor:"14,keyasint,omitempty"` // of the cell
	Generation   api.Generation `cbor:"15,keyasint,omitempty"` // the generation that was asked for, or that the caller has
	Current      api.Generation `cbor:"16,keyasint,omitempty"` // the present generation

	Mode        api.LockMode    `cbor:"17,keyasint,omitempty"` // in which the lock is or was held
	Wanted      api.LockMode    `cbor:"18,keyasint,omitempty"` // the mode that was asked for
	Holders     []api.SessionID `cbor:"19,keyasint,omitempty"` // MaxHolders at most, in the order of their grants
	HolderCount int             `cbor:"20,keyasint,omitempty"` // the number of all holders
	Length      time.Duration   `cbor:"21,keyasint,omitempty"` // of a lease or a lock-delay

	Used    int64      `cbor:"22,keyasint,omitempty"` // or the size of something too large
	Allowed int64      `cbor:"23,keyasint,omitempty"`
	More    int64      `cbor:"24,keyasint,omitempty"` // what was asked for
	Quota   *api.Quota `cbor:"25,keyasint,omitempty"`

	Cycle []Wait `cbor:"26,keyasint,omitempty" since:"3"` // MaxCycle at most; the first step is that of the request refused

	Step int `cbor:"27,keyasint,omitempty" since:"3"` // of a transaction: which of its conditions, or then of its operations, was refused, from 1
}

// Wait is a step of a cycle of requests that wait for each other.
type Wait struct {
	Session api.SessionID `cbor:"1,keyasint"`           // whose request it is
	Owner   string        `cbor:"2,keyasint,omitempty"` // that it declares
	Path    string        `cbor:"3,keyasint,omitempty"` // the lock; empty if the session that is refused may not read it
	For     api.SessionID `cbor:"4,keyasint"`           // who holds the lock, or comes before: for the same owner as the next step
}

// MaxCycle bounds the steps of a cycle that a refusal names.
const MaxCycle = 8

// MaxHolders bounds the holders that a refusal names: a lock may have many thousands, and each
// session keeps up to api.MaxOutstanding answers. The tree has all holders.
const MaxHolders = 100

// Code returns the code of the cause, api.OK for a nil Refusal.
func (r *Refusal) Code() api.Code {
	if r == nil {
		return api.OK
	}
	return r.Cause.Code()
}

// Message returns the sentence for people: what is wrong, and what to do next.
func (r *Refusal) Message() string {
	row, ok := rows[r.Cause]
	if !ok {
		return r.Cause.String()
	}
	facts := make([]any, len(row.facts))
	for i, one := range row.facts {
		facts[i] = one(r)
	}
	return fmt.Sprintf(row.format, facts...)
}

// Error returns the message and the code.
func (r *Refusal) Error() string { return r.Err().Error() }

// Err returns the refusal as an error for a caller of the cell.
func (r *Refusal) Err() *api.Error {
	e := &api.Error{Code: r.Code(), Message: r.Message()}
	if e.Code == api.GenerationMismatch {
		e.Current = r.Current
	}
	for _, s := range r.Holders {
		e.Holders = append(e.Holders, api.Holder{Session: s})
	}
	for _, w := range r.Cycle {
		e.Cycle = append(e.Cycle, api.Wait(w))
	}
	return e
}

// Is reports whether target is the refusal's code, for errors.Is.
func (r *Refusal) Is(target error) bool {
	code, ok := target.(api.Code)
	//mutants: same (no refusal has the code 0)
	return ok && code == r.Code()
}

// As stores the refusal's *api.Error in target, for errors.As.
func (r *Refusal) As(target any) bool {
	e, ok := target.(**api.Error)
	if ok {
		*e = r.Err()
	}
	return ok
}

// IsFinal reports whether a refusal with that code means that the request was not done, and never
// will be. Other codes concern the replica that was asked, or the session: an earlier copy of the
// request may have been done, or a later one may be.
func IsFinal(code api.Code) bool {
	switch code {
	case api.NotMaster, api.Unavailable, api.Uncertain, api.StaleEpoch, api.SessionExpired, api.DeadlineExceeded:
		return false
	}
	return true
}

// Intervention is what an operator did to a lock or to a session: who did it, and why, in the
// operator's words.
type Intervention struct {
	Principal string `cbor:"1,keyasint,omitempty"`
	Why       string `cbor:"2,keyasint,omitempty"`
}

// String returns who did it, and why.
func (i Intervention) String() string { return i.Principal + ": " + i.Why }

// Break returns the sentence about a lock that an operator broke.
func (i Intervention) Break() string { return "broken by " + i.String() }

// Termination returns the sentence about a session that an operator ended.
func (i Intervention) Termination() string { return "ended by " + i.String() }

// fact returns a value for a sentence about a refusal.
type fact func(r *Refusal) any

func epoch(r *Refusal) any         { return r.Epoch }
func currentEpoch(r *Refusal) any  { return r.CurrentEpoch }
func request(r *Refusal) any       { return r.Request }
func listed(r *Refusal) any        { return r.Listed }
func previous(r *Refusal) any      { return r.Previous }
func highestIssued(r *Refusal) any { return r.HighestIssued }
func session(r *Refusal) any       { return r.Session }
func principal(r *Refusal) any     { return r.Principal }
func name(r *Refusal) any          { return r.Name }
func list(r *Refusal) any          { return r.List }
func path(r *Refusal) any          { return r.Path }
func kind(r *Refusal) any          { return r.Kind }
func generation(r *Refusal) any    { return r.Generation }
func current(r *Refusal) any       { return r.Current }
func mode(r *Refusal) any          { return r.Mode }
func wanted(r *Refusal) any        { return r.Wanted }
func length(r *Refusal) any        { return r.Length }
func used(r *Refusal) any          { return r.Used }
func allowed(r *Refusal) any       { return r.Allowed }
func more(r *Refusal) any          { return r.More }

func aclDir(*Refusal) any        { return api.ACLDir }
func minLease(*Refusal) any      { return api.MinLease }
func maxLease(*Refusal) any      { return api.MaxLease }
func maxLockDelay(*Refusal) any  { return api.MaxLockDelay }
func maxGeneration(*Refusal) any { return uint64(api.MaxGeneration) }
func exclusive(*Refusal) any     { return api.Exclusive }
func shared(*Refusal) any        { return api.Shared }

// node returns the kind of the node, in words.
func node(r *Refusal) any {
	switch {
	case r.Name == "":
		return "the root directory"
	case r.Kind == api.Directory:
		return "the directory"
	}
	return "the node"
}

// directory returns the name of a directory; the root's name is empty.
func directory(r *Refusal) any {
	if r.Name == "" {
		return "/"
	}
	return r.Name
}

// holders names the first holders, and says how many more there are.
func holders(r *Refusal) any {
	const named = 3 // for the sentence; Holders has up to MaxHolders
	var who []string
	for _, s := range r.Holders[:min(len(r.Holders), named)] {
		who = append(who, s.String())
	}
	if more := r.HolderCount - len(who); more > 0 {
		who = append(who, fmt.Sprintf("%d more", more))
	}
	return strings.Join(who, ", ")
}

// cycle says who waits for whom.
func cycle(r *Refusal) any {
	var steps []string
	for _, w := range r.Cycle {
		lock := w.Path
		if lock == "" {
			lock = "a lock that you may not read"
		}
		if w.Owner != "" {
			steps = append(steps, fmt.Sprintf("%v (for %q) waits for %s and %v", w.Session, w.Owner, lock, w.For))
		} else {
			steps = append(steps, fmt.Sprintf("%v waits for %s and %v", w.Session, lock, w.For))
		}
	}
	if more := r.Used - int64(len(steps)); more > 0 {
		steps = append(steps, fmt.Sprintf("so on in %d more steps", more))
	}
	return strings.Join(steps, ", ")
}

func quota(r *Refusal) any {
	if r.Quota == nil {
		return api.Quota{}
	}
	return *r.Quota
}

func quotaNodes(r *Refusal) any { return quota(r).(api.Quota).Nodes }
func quotaBytes(r *Refusal) any { return quota(r).(api.Quota).Bytes }

// by returns the operator's intervention, the zero value if it is unknown.
func by(r *Refusal) Intervention {
	if r.By == nil {
		return Intervention{}
	}
	return *r.By
}

func broken(r *Refusal) any      { return by(r).Break() }
func termination(r *Refusal) any { return by(r).Termination() }
