package sequencer

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// Refusal is a refusal with the tokens that it is about, for programs;
// errors.As finds it in what Check and Do return, and in it the *api.Error,
// whose code is BadSequencer. Text that is no sequencer is refused without one.
type Refusal struct {
	Token  uint64 // of the request's sequencer
	Newest uint64 // the greatest let in of its lock before; 0 if none was, or none is known

	lost bool // the Checker says so, and not a newer token
	err  error
}

// Error names both tokens.
func (r *Refusal) Error() string {
	switch {
	case !r.lost:
		return r.err.Error()
	case r.Newest == 0:
		return fmt.Sprintf("token %d is refused (none was let in before): %v", r.Token, r.err)
	}
	return fmt.Sprintf("token %d is refused (%d is the newest let in): %v", r.Token, r.Newest, r.err)
}

// Unwrap returns the *api.Error, or what the Checker returned.
func (r *Refusal) Unwrap() error { return r.err }

// Stale is the refusal of s because newest is known of its lock: what a Store
// returns from Save.
func Stale(s Sequencer, newest uint64) error { return (&staleError{seq: s, newest: newest}).report() }

// staleError is the refusal of a sequencer because a newer one was seen. It
// stays within the package, to be counted; callers get what it reports.
type staleError struct {
	seq    Sequencer
	newest uint64
	told   error // the store's own report, if it is the store that knows the newer one
}

// Error is the report's text.
func (e *staleError) Error() string { return e.report().Error() }

func (e *staleError) report() error {
	var told *Refusal
	switch {
	case errors.As(e.told, &told):
		return e.told
	case e.told != nil:
		return &Refusal{Token: e.seq.Token(), err: e.told}
	}
	return &Refusal{Token: e.seq.Token(), Newest: e.newest, err: refused(e.seq,
		"token %d is stale: %d was seen for %s; the lock has passed on, so stop acting for it, or acquire it again",
		e.seq.Token(), e.newest, e.seq.Path)}
}

// refusal is the answer to a well-formed sequencer that does not let in here,
// whatever was let in before.
func refusal(s Sequencer, format string, args ...any) error {
	return &Refusal{Token: s.Token(), err: refused(s, format, args...)}
}

func refused(s Sequencer, format string, args ...any) *api.Error {
	return &api.Error{Code: api.BadSequencer, Op: "check sequencer", Path: s.Path.String(), Message: fmt.Sprintf(format, args...)}
}

// ended reports that ctx ended before the request of s was let in.
func ended(ctx context.Context, s Sequencer) error {
	return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "check sequencer", Path: s.Path.String(), Err: context.Cause(ctx),
		Message: fmt.Sprintf("the request of token %d was not let in before its time ran out; "+
			"older requests may still be running, or the store is slow", s.Token())}
}
