package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// call is one call to the master, however many attempts it takes.
type call struct {
	op, path string
	// session is waited for before each attempt, and stands in it; nil for the
	// calls that need none.
	session *sessionState
	// open says that one attempt may take as long as it likes: it ends when
	// another master is found.
	open bool
	room room // that an attempt has to find
	// size is how many bytes the request has, if they may be many.
	size int
	// attempt sends the call once; after an error it may be asked to do so
	// again.
	attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error
}

// verdict is what to do after an attempt.
type verdict uint8

const (
	final    verdict = 1 // the answer is the answer
	again    verdict = 2 // ask again, whoever is master then; this attempt did nothing
	follow   verdict = 3 // ask the one named; this attempt did nothing
	stale    verdict = 4 // ask again in the epoch of then; this attempt did nothing
	unsettle verdict = 5 // ask again; this attempt may have done what was asked
)

// judge says what to conclude from the error of an attempt. An error with a
// cause was made in this process, by gRPC, and so knows nothing of what the
// other side did.
func judge(e *api.Error) verdict {
	bare := e.Err != nil
	switch e.Code {
	case api.NotMaster:
		return follow
	case api.StaleEpoch:
		return stale
	case api.Unavailable:
		if bare {
			return unsettle
		}
		return again
	case api.Uncertain, api.DeadlineExceeded:
		return unsettle
	case api.Cancelled:
		if bare {
			return unsettle
		}
	}
	return final
}

// outcome is what is known of a call that has ended.
type outcome uint8

const (
	answered   outcome = 1 // its answer, also if that is a refusal
	unanswered outcome = 2 // no attempt has done what was asked, nor was it refused for good
	unsettled  outcome = 3 // an attempt may have done it
)

// most hops that replicas may send a call round in without a pause.
const mostHops = 3

// run makes attempts until one has a definite answer, or ctx or the session
// ends.
func (f *finder) run(ctx context.Context, k call) (outcome, error) {
	if k.session != nil {
		var cancel context.CancelFunc
		ctx, cancel = k.session.withSession(ctx)
		defer cancel()
	}
	var p pause
	last := errors.New("nothing was sent")
	left := unanswered // what the call comes to if it ends now
	for hops := 1; ; {
		t, caller, leave, err := f.turn(ctx, k)
		if err != nil {
			leave()
			return left, f.gaveUp(ctx, k, err, last)
		}
		e, hung := f.attempt(ctx, k, t, caller)
		leave()
		if e == nil {
			return answered, nil
		}
		last = fmt.Errorf("%s answered: %s", t.address, brief(e))
		switch v := judge(e); {
		case v == final:
			// What is not the answer of the log says nothing of the attempts before:
			// one may have been done, and its answer lost.
			if left != unsettled || e.Final || e.Code == api.SessionExpired {
				left = answered
			}
			if e.Code == api.SessionExpired && k.session != nil {
				k.session.endSession(EndedByCell, sessionUnknownText)
				e = k.session.errIfGone()
			}
			return left, about(e, k.op, k.path)
		case v == follow && f.follow(t, e.Master) && hops%mostHops != 0:
			hops++
			continue
		case v == stale && k.session != nil && k.session.awaitEpochAfter(ctx, caller.GetEpoch()):
			continue
		case v == unsettle:
			left = unsettled
		}
		// When a call's time is up its master is not to blame: it may even say so
		// first, because it knows the deadline.
		if ctx.Err() == nil && (hung || e.Code != api.DeadlineExceeded) {
			f.drop(t)
		}
		p.wait(ctx)
	}
}

// prepare waits until the session is safe and the master known.
func (f *finder) prepare(ctx context.Context, k call) (*target, *chubbypb.Caller, error) {
	if ctx.Err() != nil {
		return nil, nil, contextError(ctx)
	}
	for {
		t, err := f.find(ctx)
		if err != nil || k.session == nil {
			return t, nil, err
		}
		// The session is looked at last: nothing may stand between the clock and
		// the use of what it says.
		caller, waited, err := k.session.awaitSafe(ctx)
		if err != nil || !waited {
			return t, caller, err
		}
	}
}

// attempt makes one attempt. hung says that it came to no end of its own.
func (f *finder) attempt(ctx context.Context, k call, t *target, caller *chubbypb.Caller) (e *api.Error, hung bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.onSuperseded(cancel)()
	if other := f.believed(); other != nil && other != t { // since t was found, and so until may not tell
		return &api.Error{Code: api.Unavailable, Message: "another master was found before it was asked"}, false
	}
	if !k.open {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, f.cfg.CallTimeout)
		defer stop()
		defer f.watch(ctx, t)()
	}
	if k.session != nil {
		k.session.counters.attempts.Add(1)
	}
	err := k.attempt(ctx, t, caller)
	if err == nil {
		return nil, false
	}
	e = &api.Error{Code: api.Uncertain, Message: "an error of no known kind", Err: err}
	errors.As(t.explain(err), &e)
	return e, ctx.Err() != nil
}

// gaveUp is the error of a call that ends without a definite answer, because of
// err; last is what its last attempt came to.
func (f *finder) gaveUp(ctx context.Context, k call, err, last error) error {
	if k.session != nil {
		if over := k.session.errIfGone(); over != nil {
			return about(over, k.op, k.path)
		}
	}
	var e *api.Error
	if ctx.Err() == nil && errors.As(err, &e) {
		return about(e, k.op, k.path)
	}
	gave := &api.Error{Code: api.Unavailable, Op: k.op, Path: k.path, Err: contextError(ctx)}
	if errors.Is(ctx.Err(), context.Canceled) {
		gave.Code = api.Cancelled
	}
	gave.Message = fmt.Sprintf("gave up on cell %s: %v", f.cfg.Cell, last)
	if k.session != nil {
		gave.Message += "; " + k.session.describe()
	}
	if said := f.diagnosis(); said != "" {
		gave.Message += "; " + said
	}
	return gave
}
