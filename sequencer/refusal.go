package sequencer

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// Refusal is a refusal with both tokens, for programs. errors.As finds it in
// the errors of Check and Do, and in it the *api.Error, whose code is
// BadSequencer. The refusal of a text that is not a sequencer has no Refusal.
type Refusal struct {
	Token  uint64 // of the request's sequencer
	Newest uint64 // the greatest let in before for its lock; 0 if there was none, or none is known

	lost bool // according to the Checker, not to a newer token
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

// Stale returns the refusal of s because the token newest of its lock is known.
// A Store returns it from Save.
func Stale(s Sequencer, newest uint64) error { return (&staleError{seq: s, newest: newest}).report() }

// staleError is the refusal of a sequencer because a newer one was seen. It
// stays within the package, for counting; callers get its report.
type staleError struct {
	seq    Sequencer
	newest uint64
	told   error // the store's own report, if only the store knows the newer one
}

// Error returns the text of the report.
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

// refusal returns the error for a well-formed sequencer that this guard does
// not accept, whatever it accepted before.
func refusal(s Sequencer, format string, args ...any) error {
	return &Refusal{Token: s.Token(), err: refused(s, format, args...)}
}

func refused(s Sequencer, format string, args ...any) *api.Error {
	return &api.Error{Code: api.BadSequencer, Op: "check sequencer", Path: s.Path.String(), Message: fmt.Sprintf(format, args...)}
}

// ended returns the error for a ctx that ended before the request of s was let
// in.
func ended(ctx context.Context, s Sequencer) error {
	return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "check sequencer", Path: s.Path.String(), Err: context.Cause(ctx),
		Message: fmt.Sprintf("the request of token %d was not let in before its time ran out; "+
			"older requests may still be running, or the store is slow", s.Token())}
}
