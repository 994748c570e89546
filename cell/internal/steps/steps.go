package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Call is a call as the room of the wire keeps it. Its methods are called by the goroutine that serves the call, with no
// mutex held.
type Call interface {
	RequestID() RequestID
	// TraceID names the trace of the call, in metrics and log lines; "" if it is not traced.
	TraceID() string
	// Step is told of a part of the call that has ended. The parts come in their order, and do not overlap.
	Step(Step)
}

// Step is a part of a call: what it was doing from one moment to another. Of the fields below Err those are set that
// belong to its kind. Nothing is in it that the caller could not ask for.
type Step struct {
	Kind     Kind
	From, To session.Instant
	Err      error  // why it ended before its time
	Parts    []Step // what it consists of

	Mode    api.LockMode    // of Queue
	Place   int             // of Queue: when it was first told; 0 if it was not
	Waiting int             // of Queue: how many waited then
	Holders []api.SessionID // of Queue: who held the lock then; at most api.MaxNamed

	Names []string        // of Caches: the paths that were changed
	Slow  []api.SessionID // of Caches: some of those who were still waited for when it was last looked

	Commands int // of Entry: how many had their place in the same entry
}

// Kind is what a call was doing.
type Kind string

// The steps of calls. An entry consists of the four below it.
const (
	Queue   Kind = "wait in the queue of the lock"
	Caches  Kind = "wait for caches"
	Pending Kind = "wait for the entry before"
	Entry   Kind = "commit"
	Append  Kind = "append and sync"   // to the log of this replica, while the entry is sent to the others
	Quorum  Kind = "wait for a quorum" // after that
	Apply   Kind = "apply"
	Observe Kind = "observe" // the master takes note of what the entry did, and grants locks
)

// Phases is when an entry was written and applied here. What is not known is zero.
type Phases struct {
	AppendFrom, AppendTo session.Instant
	ApplyFrom, ApplyTo   session.Instant
}

// EntryTimes is the timing of an entry, made before its commands are observed.
type EntryTimes struct {
	Commands int
	From     session.Instant // when it was made
	Phases   Phases          // zero if it was not committed
}

// Steps returns the steps of a call, from the hand-over at queued to the answer by this entry at done. A nil entry is that
// of a call that was refused before any.
func (n *EntryTimes) Steps(queued, done session.Instant, err error) []Step {
	if n == nil {
		return []Step{{Kind: Pending, From: queued, To: done, Err: err}}
	}
	one := Step{Kind: Entry, From: n.From, To: done, Err: err, Commands: n.Commands}
	if p := n.Phases; p.AppendTo != 0 && p.ApplyTo != 0 {
		one.Parts = []Step{
			{Kind: Append, From: p.AppendFrom, To: p.AppendTo},
			{Kind: Quorum, From: p.AppendTo, To: p.ApplyFrom},
			{Kind: Apply, From: p.ApplyFrom, To: p.ApplyTo},
			{Kind: Observe, From: p.ApplyTo, To: done},
		}
	}
	return []Step{{Kind: Pending, From: queued, To: n.From}, one}
}

// CallKey finds the Call in its context.
type CallKey struct{}

// RequestID names a call, as its client does in all attempts, for people: in errors, and in the logs of replicas. It is not
// the number of a change (api.RequestNumber): calls that change nothing have one, too, and nothing depends on it. Clients
// count from a random number, so that two clients rarely use the same one. 0 is none.
type RequestID uint64

// String writes 16 hexadecimal digits, as clients do.
func (r RequestID) String() string { return fmt.Sprintf("%016x", uint64(r)) }

// Slow is how long a call may take, without what it waits for by design, before it is told what it has waited for although
// it is not traced.
const Slow = time.Second

// Told returns the call that is to be told of a step that has taken so long: nil, unless the call is traced or the step was slow.
func Told(ctx context.Context, took time.Duration) Call {
	if c, ok := ctx.Value(CallKey{}).(Call); ok && (took >= Slow || c.TraceID() != "") {
		return c
	}
	return nil
}

// RequestOf returns the name of a call, 0 if it has none.
func RequestOf(ctx context.Context) RequestID {
	if c, ok := ctx.Value(CallKey{}).(Call); ok {
		return c.RequestID()
	}
	return 0
}

// TraceOf names the trace of a call, "" if it is not traced.
func TraceOf(ctx context.Context) string {
	if c, ok := ctx.Value(CallKey{}).(Call); ok {
		return c.TraceID()
	}
	return ""
}
