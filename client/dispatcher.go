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

// dispatcher sends calls to the master, whichever replica that is: it repeats a call
// until that has a definite answer. Its locator tells it which replica is the master,
// and looks for another when calls to that one fail.
type dispatcher struct {
	cfg     Config
	locator *locator
	limits  callLimits

	requests atomic.Uint64 // names the newest call; it begins with a random one, so that other processes have others
}

func newDispatcher(cfg Config, f *locator) *dispatcher {
	d := &dispatcher{cfg: cfg, locator: f, limits: newCallLimits()}
	d.requests.Store(uint64(rand.Uint32()) << 32)
	return d
}

// call is one call to the master, however many attempts it takes.
type call struct {
	op, path string
	// session must be safe when an attempt is sent; nil for calls without a session.
	session *sessionState
	// noTimeout says that CallTimeout does not bound an attempt, which may wait for
	// long. It ends when another master is found.
	noTimeout bool
	class     callClass
	size      int    // of the request in bytes, if it may be large
	request   uint64 // names it, in all of its attempts; dispatch sets it
	// attempt sends the call once. It is called again after an error that allows a retry.
	attempt func(ctx context.Context, t *target, caller *chubbypb.Caller) error
}

// verdict is what to do after an attempt.
type verdict uint8

const (
	verdictFinal      verdict = 1 // the call ends with this answer
	verdictRetry      verdict = 2 // send it again, to whichever replica is the master then; this attempt did nothing
	verdictFollow     verdict = 3 // send it to the replica that the error names; this attempt did nothing
	verdictStaleEpoch verdict = 4 // send it again once the session knows the current epoch; this attempt did nothing
	verdictUncertain  verdict = 5 // send it again; this attempt may have taken effect
)

// verdictOf says what to conclude from the error of an attempt. An error that wraps a
// cause was made in this process, by gRPC, and says nothing of what the master did.
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

// outcome is what is known of a call that has ended.
type outcome uint8

const (
	outcomeAnswered  outcome = 1 // it was answered, perhaps by a refusal
	outcomeNotDone   outcome = 2 // no attempt has taken effect, and none was refused for good
	outcomeUncertain outcome = 3 // an attempt may have taken effect
)

// maxHops is how often replicas may redirect a call without a pause.
const maxHops = 3

// dispatch makes attempts until one has a definite answer, or ctx or the session
// ends.
func (d *dispatcher) dispatch(ctx context.Context, k call) (outcome, error) {
	k.request = d.requests.Add(1)
	began := d.cfg.Meter.start(d.cfg.Clock)
	result, err := d.repeat(ctx, k)
	d.cfg.Meter.called(k.op, d.cfg.Clock, began, err)
	return result, withRequest(err, k.request)
}

// repeat is dispatch, which nobody measures.
func (d *dispatcher) repeat(ctx context.Context, k call) (outcome, error) {
	if d.cfg.Tracer != nil {
		return d.dispatchTraced(ctx, k)
	}
	return d.dispatchUntraced(ctx, k)
}

func (d *dispatcher) dispatchUntraced(ctx context.Context, k call) (outcome, error) {
	var unbind context.CancelFunc
	bind := func() { // has ctx end with the session, before there is anything to wait for
		if k.session != nil && unbind == nil {
			ctx, unbind = k.session.withSession(ctx)
		}
	}
	defer func() {
		if unbind != nil {
			unbind()
		}
	}()
	var p retryPause
	last := errNothingSent
	result := outcomeNotDone // of the call if it ends now
	slots := d.limits.slotsFor(k)
	for hops := 1; ; {
		t, caller := d.admitNow(ctx, k, slots)
		if t == nil {
			bind()
			var err error
			if t, caller, err = d.admit(ctx, k, slots); err != nil {
				return result, d.gaveUpError(ctx, k, err, last)
			}
		}
		e, hung := d.attemptOnce(ctx, k, t, caller)
		slots.leave()
		if e == nil {
			return outcomeAnswered, nil
		}
		bind()
		last = fmt.Errorf("%s answered: %s", t.address, brief(e))
		switch v := verdictOf(e); {
		case v == verdictFinal:
			// Only an answer of the log settles the attempts before: one of them may have
			// taken effect, and its answer been lost.
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
		case v == verdictStaleEpoch && k.session != nil && k.session.awaitEpochAfter(ctx, caller.GetEpoch()):
			continue
		case v == verdictUncertain:
			result = outcomeUncertain
		}
		// The end of the call's own time is no fault of the master, which knows the
		// deadline and may report DeadlineExceeded before ctx ends here.
		if ctx.Err() == nil && (hung || e.Code != api.DeadlineExceeded) {
			d.locator.forgetMaster(t)
		}
		p.wait(ctx)
	}
}

// errNothingSent is the last error of a call that has made no attempt.
var errNothingSent = errors.New("nothing was sent")

// admitNow is admit without a wait: t is nil if admit would wait or fail.
func (d *dispatcher) admitNow(ctx context.Context, k call, s slots) (t *target, caller *chubbypb.Caller) {
	if ctx.Err() != nil {
		return nil, nil
	}
	if t, caller = d.readyNow(k); t == nil || !s.takeNow() {
		return nil, nil
	}
	return t, caller
}

// admit is awaitReady, and waits until the limits allow an attempt. CallTimeout counts
// from then, so that the wait is taken neither for a silent master nor for an attempt
// that may have taken effect. No call keeps a slot while it waits for its session or for a
// master, because other sessions share the limits. If there is no error, the caller gives
// the slots back after the attempt.
func (d *dispatcher) admit(ctx context.Context, k call, s slots) (t *target, caller *chubbypb.Caller, err error) {
	for {
		if t, caller, err = d.awaitReady(ctx, k); err != nil {
			return nil, nil, err
		}
		waited, err := s.take(ctx)
		if err != nil {
			return nil, nil, err
		}
		if !waited {
			return t, caller, nil
		}
		// Meanwhile another replica may have become the master, or the session unsafe.
		if t, caller = d.readyNow(k); t != nil && ctx.Err() == nil {
			return t, caller, nil
		}
		s.leave()
	}
}

// awaitReady waits until the session is safe and the master known.
func (d *dispatcher) awaitReady(ctx context.Context, k call) (*target, *chubbypb.Caller, error) {
	if ctx.Err() != nil {
		return nil, nil, contextError(ctx)
	}
	for {
		t, err := d.locator.locate(ctx)
		if err != nil || k.session == nil {
			return t, nil, err
		}
		// The session comes last: nothing may come between reading the clock and
		// acting upon it.
		caller, waited, err := k.session.awaitSafe(ctx)
		if err != nil || !waited {
			return t, caller, err
		}
	}
}

// readyNow is awaitReady without a wait: t is nil if awaitReady would wait or fail.
func (d *dispatcher) readyNow(k call) (t *target, caller *chubbypb.Caller) {
	if t = d.locator.ready(); t == nil || k.session == nil {
		return t, nil
	}
	if caller = k.session.callerIfSafe(); caller == nil {
		return nil, nil
	}
	return t, caller
}

// attemptOnce makes one attempt. hung says that a context ended it, and no answer.
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
	if other := d.locator.believedMaster(); other != nil && other != t { // found before onSuperseded was called, which therefore does not tell
		return &api.Error{Code: api.Unavailable, Message: "another master was found before it was asked"}, false
	}
	if !k.noTimeout {
		defer d.watchAnswer(ctx, t).answered()
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

// lateAfter is how long a call may be without an answer before the replicas are asked
// whether another is the master. A healthy master answers sooner, even if it waits for
// a disk, and an election takes less.
const lateAfter = time.Second

// answerWatch watches over a call to a target that has no answer yet. A machine that is
// stopped, or that has lost power or network, closes no connection: calls to it would wait
// for CallTimeout. So when the answer is late, the master is looked for while the call goes
// on. If another replica is found, all calls to the target are cancelled; if the target is
// found again, it is only slow, and they go on.
type answerWatch struct {
	locator *locator
	ctx     context.Context //nolint:containedctx // of the call
	target  *target
	timer   *time.Timer

	mu     sync.Mutex // guards what follows; locator.mu is taken while it is held
	joined *search
	done   bool
}

// watchAnswer begins to watch over a call to t. The caller calls answered.
func (d *dispatcher) watchAnswer(ctx context.Context, t *target) *answerWatch {
	w := &answerWatch{locator: d.locator, ctx: ctx, target: t}
	w.timer = time.AfterFunc(lateAfter, w.late) // which does not read it
	return w
}

// late looks for the master.
func (w *answerWatch) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.joined = w.locator.joinSearch(w.ctx, w.target)
	}
}

// answered says that the answer has arrived or is not waited for any more; a second call
// does nothing.
func (w *answerWatch) answered() {
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

// gaveUpError returns the error of a call that ends without a definite answer because
// of err; last is the error of its last attempt.
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
