package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// dispatcher sends calls to the master, and repeats each until it has a definite answer. Its locator finds
// the master.
type dispatcher struct {
	cfg     Config
	locator *locator
	limits  callLimits

	requests atomic.Uint64 // names the newest call; begins with a random number, unlike other processes'
}

func newDispatcher(cfg Config, f *locator) *dispatcher {
	d := &dispatcher{cfg: cfg, locator: f, limits: newCallLimits()}
	d.requests.Store(uint64(rand.Uint32()) << 32)
	return d
}

type call struct {
	op, path string
	// session must be safe when an attempt is sent; nil for calls without a session.
	session *sessionState
	// noTimeout frees an attempt, which may wait for long, from CallTimeout. It ends when another master is
	// found.
	noTimeout bool
	class     callClass
	size      int    // of the request in bytes, if it may be large
	request   uint64 // names it in all attempts; dispatch sets it
	// attempt sends the call once, and again after an error that allows a retry.
	attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error
}

// sessionDone is closed when the call's session is gone; nil without one.
func (k call) sessionDone() <-chan struct{} {
	if k.session == nil {
		return nil
	}
	return k.session.ended.Done()
}

type verdict uint8

const (
	verdictFinal      verdict = 1 // the call ends with this answer
	verdictRetry      verdict = 2 // send it again, to the current master; nothing was done
	verdictFollow     verdict = 3 // send it to the replica named in the error; nothing was done
	verdictStaleEpoch verdict = 4 // send it again in the session's new epoch; nothing was done
	verdictUncertain  verdict = 5 // send it again; it may have taken effect
)

// verdictOf judges the error of an attempt. An error with a cause is gRPC's own, and says nothing of the
// master's work.
func verdictOf(e *api.Error) verdict {
	local := e.Err != nil
	switch e.Code {
	case api.NotMaster:
		return verdictFollow
	case api.StaleEpoch:
		return verdictStaleEpoch
	case api.Unavailable:
		if local {
			return verdictUncertain
		}
		return verdictRetry
	case api.Uncertain, api.DeadlineExceeded:
		return verdictUncertain
	case api.Cancelled:
		if local {
			return verdictUncertain
		}
	}
	return verdictFinal
}

type outcome uint8

const (
	outcomeAnswered  outcome = 1 // answered, perhaps by a refusal
	outcomeNotDone   outcome = 2 // no attempt has taken effect, and none was refused for good
	outcomeUncertain outcome = 3 // an attempt may have taken effect
)

// maxHops limits redirections without a pause.
const maxHops = 3

// dispatch makes attempts until a definite answer, or until ctx or the session ends.
func (d *dispatcher) dispatch(ctx context.Context, k call) (result outcome, err error) {
	k.request = d.requests.Add(1)
	began := d.cfg.Meter.start(d.cfg.Clock)
	if d.cfg.Tracer != nil {
		result, err = d.dispatchTraced(ctx, k)
	} else {
		result, err = d.dispatchUntraced(ctx, k)
	}
	d.cfg.Meter.called(k.op, d.cfg.Clock, began, err)
	return result, withRequest(err, k.request)
}

func (d *dispatcher) dispatchUntraced(ctx context.Context, k call) (outcome, error) {
	var p retryPause
	last := errNothingSent
	result := outcomeNotDone // of the call if it ends now
	slots := d.limits.slotsFor(k)
	for hops := 1; ; {
		t, caller, err := d.admit(ctx, k, slots)
		if err != nil {
			return result, d.gaveUpError(ctx, k, err, last)
		}
		e, hung := d.attemptOnce(ctx, k, t, caller)
		slots.leave()
		if e == nil {
			return outcomeAnswered, nil
		}
		last = fmt.Errorf("%s answered: %s", t.address, brief(e))
		switch v := verdictOf(e); {
		case v == verdictFinal:
			// Only an answer of the log settles earlier attempts: one may have taken effect without its
			// answer arriving.
			//mutant: if result != outcomeUncertain || e.Err == nil || e.Code == api.SessionExpired {
			if result != outcomeUncertain || e.Final || e.Code == api.SessionExpired {
				result = outcomeAnswered
			}
			if e.Code == api.SessionExpired && k.session != nil {
				k.session.endSession(EndedByCell, sessionUnknownText)
				e = k.session.errIfGone()
			}
			return result, withOperation(e, k.op, k.path)
		case v == verdictFollow && d.locator.redirect(t, e.Master) && hops%maxHops != 0:
			hops++
			continue
		case v == verdictStaleEpoch && k.session != nil && awaitEpochAfter(ctx, k.session, caller.GetEpoch()):
			continue
		case v == verdictUncertain:
			result = outcomeUncertain
		}
		// The end of the call's own time, or of its session, is no fault of the master, which may report
		// DeadlineExceeded before ctx ends here.
		if over := ctx.Err() != nil || k.session != nil && k.session.ended.Err() != nil; !over && (hung || e.Code != api.DeadlineExceeded) {
			d.locator.forgetMaster(t)
		}
		sleepWithin(ctx, k.sessionDone(), p.next())
	}
}

var errNothingSent = errors.New("nothing was sent")

// admit waits for a master, for a safe session, and until the limits allow an attempt. CallTimeout counts from
// then, so the wait is neither a silent master's nor an attempt that may have taken effect. No call keeps a slot
// while it waits for its session or for a master, as sessions share the limits. Without an error, the caller gives
// the slots back after the attempt.
func (d *dispatcher) admit(ctx context.Context, k call, s slots) (t *target, caller *chubbypb.Caller, err error) {
	for ctx.Err() == nil {
		if t, err = d.locator.locate(ctx, k.sessionDone()); err != nil {
			return nil, nil, err
		}
		var waited bool
		if k.session != nil { // it comes last: act directly after reading the clock
			if caller, waited, err = k.session.awaitSafe(ctx); err != nil {
				return nil, nil, err
			}
			if waited {
				continue
			}
		}
		if waited, err = s.take(ctx, k.sessionDone()); err != nil {
			return nil, nil, err
		}
		if !waited {
			return t, caller, nil
		}
		// Meanwhile the master may have changed, or the session become unsafe.
		if t, caller = d.readyNow(k); t != nil && ctx.Err() == nil {
			return t, caller, nil
		}
		s.leave()
	}
	return nil, nil, contextError(ctx)
}

// readyNow returns the master and the Caller for a request; t is nil if one would have to be waited for.
func (d *dispatcher) readyNow(k call) (t *target, caller *chubbypb.Caller) {
	if t = d.locator.believedMaster(); t == nil || k.session == nil {
		return t, nil
	}
	if caller = k.session.callerIfSafe(); caller == nil {
		return nil, nil
	}
	return t, caller
}

// attemptOnce makes one attempt. hung: a context ended it, without an answer.
func (d *dispatcher) attemptOnce(ctx context.Context, k call, t *target, caller *chubbypb.Caller) (e *api.Error, hung bool) {
	var cancel context.CancelFunc
	if k.noTimeout {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, d.cfg.CallTimeout)
	}
	defer cancel()
	if k.session != nil {
		defer context.AfterFunc(k.session.ended, cancel)()
	}
	defer t.onSuperseded(cancel)()
	//mutant: if other := d.locator.believedMaster(); other != nil && other != t && false {
	if other := d.locator.believedMaster(); other != nil && other != t { // found before onSuperseded, which therefore reports nothing
		return &api.Error{Code: api.Unavailable, Message: "another master was found before it was asked"}, false
	}
	if !k.noTimeout {
		defer d.watchAnswer(t).endWatch()
	}
	if caller == nil {
		caller = &chubbypb.Caller{}
	}
	caller.Request = k.request
	if k.session != nil {
		k.session.counters.attempts.Add(1)
	}
	var err error
	if d.cfg.Tracer == nil {
		err = k.attempt(ctx, t, caller)
	} else {
		err = d.attemptTraced(ctx, t, func(ctx context.Context) error { return k.attempt(ctx, t, caller) })
	}
	if err == nil {
		return nil, false
	}
	e = &api.Error{Code: api.Uncertain, Message: "an error of no known kind", Err: err}
	errors.As(t.explainError(err), &e)
	return t.withVersion(ctx, e), ctx.Err() != nil
}

// answerWatch watches an unanswered call to a target. A stopped machine, or one without power or network,
// closes no connection: calls to it would wait for CallTimeout. So when the answer is late, the client looks
// for the master meanwhile. Another master cancels all calls to the target; the same one was only slow.
type answerWatch struct {
	locator *locator
	target  *target
	timer   *time.Timer

	mu     sync.Mutex // guards what follows; locator.mu may be taken under it
	joined *search
	done   bool
}

// watchAnswer begins to watch a call to t. The caller must call endWatch.
func (d *dispatcher) watchAnswer(t *target) *answerWatch {
	w := &answerWatch{locator: d.locator, target: t}
	w.timer = time.AfterFunc(lateAfter, w.searchMeanwhile) // searchMeanwhile does not read it
	return w
}

func (w *answerWatch) searchMeanwhile() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.joined = w.locator.joinSearch(w.target)
	}
}

// endWatch ends the watch: the answer has arrived, or the call was abandoned. A second call does nothing.
func (w *answerWatch) endWatch() {
	if w.timer.Stop() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	if w.joined != nil {
		w.locator.leaveSearch(w.joined)
		w.joined = nil
	}
}

// gaveUpError returns the error of a call without a definite answer, from err and its last attempt's error.
func (d *dispatcher) gaveUpError(ctx context.Context, k call, err, last error) error {
	if k.session != nil {
		if gone := k.session.errIfGone(); gone != nil {
			return withOperation(gone, k.op, k.path)
		}
	}
	var e *api.Error
	if ctx.Err() == nil && errors.As(err, &e) {
		return withOperation(e, k.op, k.path)
	}
	gave := &api.Error{Code: api.Unavailable, Op: k.op, Path: k.path, Err: contextError(ctx)}
	if errors.Is(ctx.Err(), context.Canceled) {
		gave.Code = api.Cancelled
	}
	gave.Message = fmt.Sprintf("gave up on cell %s: %v", d.cfg.Cell, last)
	if k.session != nil {
		gave.Message += "; " + k.session.describe()
	}
	if said := d.locator.diagnosis(); said != "" {
		gave.Message += "; " + said
	}
	return gave
}
