package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Announced is what a check of health shows and takes back: a *recipe.Presence, a *recipe.Publication.
type Announced interface {
	Done() <-chan struct{}
	Err() error
	Withdraw(ctx context.Context) error
}

// Check is a check of a program's health. An error is a failure; so is each period in which Func has not returned.
type Check struct {
	// Func is called by Healthy itself, and then every Every, counted from the end of one call to the beginning of the next, and
	// never twice at a time. Its context ends after that time, or with the announcement, and it has to return then: Withdraw waits
	// for it, once the announcement is taken back.
	Func func(ctx context.Context) error
	// Every is the period, more than 0.
	Every time.Duration
	// Failures is after how many failures in a row, 1 or more, the announcement is taken back. After one success it is made again.
	Failures int
}

// Health is an announcement that is made while a check passes. Withdraw it, also when it has ended. Its methods may be called
// from several goroutines.
type Health[A Announced] struct {
	c        *client.Client
	check    Check
	announce func(ctx context.Context) (A, error)
	ctx      context.Context //nolint:containedctx // it is the announcement's, handed out by Context
	cancel   context.CancelCauseFunc
	kept     chan struct{} // closed when the goroutine that announces has ended
	checked  chan struct{} // closed when the goroutine that checks has ended
	turn     chan struct{} // capacity 1: full while shown is made, taken back or updated
	shown    *A            // nil while there is none; turn guards it

	mu     sync.Mutex    // guards what follows
	failed int           // checks in a row
	err    error         // the last failure; nil while the announcement is to be shown
	taken  error         // why it could not be made yet
	well   chan struct{} // closed when the announcement is to be shown
	sick   chan struct{} // closed when it is to be withdrawn
}

// Healthy announces something in the session of c, by announce, while a check passes. If the first check fails, nothing is announced
// yet, and no error is returned; else the error is that of announce. When the check fails, what announce has returned is withdrawn, so
// that readers do not have it; when it passes again, announce is called again, and is to announce the newest value.
//
// A name that is withdrawn is free: another session may take it, which ends this one when it would be announced again. A file
// whose lock a stranger holds cannot be removed: readers have it until he closes it, and it is made again after that.
//
// A withdrawal costs two calls, and so does putting it back; all who watch the directory hear of both. What flaps should have a
// check of its own that does not. There are two goroutines, for which Withdraw waits.
func Healthy[A Announced](ctx context.Context, c *client.Client, check Check, announce func(ctx context.Context) (A, error)) (*Health[A], error) {
	if check.Func == nil || check.Every <= 0 || check.Failures <= 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "announce", Message: fmt.Sprintf(
			"a check of health every %v, and %d failures; give a function, a period and one failure at least", check.Every, check.Failures)}
	}
	h := &Health[A]{
		c: c, check: check, announce: announce, kept: make(chan struct{}), checked: make(chan struct{}), turn: make(chan struct{}, 1),
		well: make(chan struct{}), sick: make(chan struct{}),
	}
	within, cancel := context.WithTimeout(ctx, check.Every)
	h.err = check.Func(within)
	cancel()
	switch {
	case ctx.Err() != nil:
		return nil, &api.Error{Code: api.ContextCode(ctx.Err()), Op: "announce", Err: ctx.Err(), Message: "the first check has not returned in time"}
	case h.err != nil:
		h.failed = check.Failures
		close(h.sick)
	default:
		close(h.well)
		first, err := announce(ctx)
		if err != nil {
			return nil, err
		}
		h.shown = &first
	}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go h.keep()
	go h.run()
	return h, nil
}

// Context ends when the announcement has, and is not made again: it was withdrawn, the session is over, or another has taken the
// name. context.Cause says which. It does not end while a check fails.
func (h *Health[A]) Context() context.Context { return h.ctx }

// Done is closed when Context ends.
func (h *Health[A]) Done() <-chan struct{} { return h.ctx.Done() }

// Err checks the clock, and returns why the announcement has ended, nil while it has not.
func (h *Health[A]) Err() error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	return h.c.Err()
}

// Failing returns why the announcement is withdrawn at the moment: the error of the last check, or that its file is not gone yet.
// It is nil while the announcement is shown, or about to be.
func (h *Health[A]) Failing() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return h.taken
}

// Update calls f with what is announced, or returns nil if nothing is at the moment: announce is called before it is shown again.
// Nothing is announced or withdrawn meanwhile. So a value that is given to announce, and to f, is shown by one of the two.
func (h *Health[A]) Update(ctx context.Context, f func(shown A) error) error {
	select {
	case h.turn <- struct{}{}:
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	case <-ctx.Done():
		return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "update", Err: ctx.Err(), Message: "it is just being announced or withdrawn"}
	}
	defer func() { <-h.turn }()
	if h.shown == nil {
		return nil
	}
	return f(*h.shown)
}

// Withdraw takes the announcement back, and returns when that is done and nothing of it runs any more. Its errors are those of
// the Withdraw of what was announced. If ctx ends first it goes on in the background, and another call waits for it again.
func (h *Health[A]) Withdraw(ctx context.Context) error {
	h.cancel(&api.Error{Code: api.Cancelled, Op: "announce", Err: client.Closed, Message: "it was withdrawn"})
	ctx, cancel := h.c.CleanupContext(ctx)
	defer cancel()
	late := func(what string) error {
		return &api.Error{Code: api.ContextCode(ctx.Err()), Op: "withdraw", Err: ctx.Err(), Message: what}
	}
	select {
	case <-h.kept:
	case <-ctx.Done():
		return late("the announcement is just being made or withdrawn")
	}
	if h.shown != nil {
		if err := (*h.shown).Withdraw(ctx); err != nil {
			return err
		}
	}
	select {
	case <-h.checked:
		return nil
	case <-ctx.Done():
		return late("the check of health has not returned")
	}
}

// keep announces while it is sound, until the end. What is shown then is left to Withdraw.
func (h *Health[A]) keep() {
	defer close(h.kept)
	for {
		h.mu.Lock()
		well, sick := h.well, h.sick
		h.mu.Unlock()
		var ended <-chan struct{} // of what is shown
		if h.shown != nil {
			ended = (*h.shown).Done()
		}
		var err error
		switch {
		case h.shown == nil:
			err = h.show(well)
		case wait(h.ctx, sick, ended) != nil:
			return
		default:
			err = h.takeBack(sick)
		}
		if err != nil {
			h.cancel(err)
			return
		}
	}
}

// wait waits for one of two channels; its error is that ctx has ended.
func wait(ctx context.Context, one, other <-chan struct{}) error {
	select {
	case <-one:
	case <-other:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// show announces, once a check has passed.
func (h *Health[A]) show(well <-chan struct{}) error {
	if wait(h.ctx, well, h.c.Done()) != nil {
		return context.Cause(h.ctx)
	}
	if err := h.c.Err(); err != nil {
		return err
	}
	h.turn <- struct{}{}
	shown, err := h.announce(h.ctx)
	if err == nil {
		h.shown = &shown
	}
	<-h.turn
	later := err != nil && h.isOurs(err) // its file is there still
	h.mu.Lock()
	if h.taken = nil; later {
		h.taken = err
	}
	h.mu.Unlock()
	if !later {
		return err
	}
	timer := time.NewTimer(h.check.Every)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
	return nil
}

// isOurs reports whether an error says that a name is taken by this session.
func (h *Health[A]) isOurs(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.Exists &&
		slices.ContainsFunc(e.Holders, func(one api.Holder) bool { return one.Session == h.c.Session() })
}

// takeBack withdraws what is shown, because a check has failed, or because that has ended: then the error says why.
func (h *Health[A]) takeBack(sick <-chan struct{}) error {
	select {
	case <-sick:
	default:
		return (*h.shown).Err()
	}
	h.turn <- struct{}{}
	_ = (*h.shown).Withdraw(context.WithoutCancel(h.ctx)) // what holds up its removal does not keep the file when it is closed
	h.shown = nil
	<-h.turn
	return h.c.Err() // if the session has ended, it ends with that error
}

// run checks until the end.
func (h *Health[A]) run() {
	defer close(h.checked)
	for {
		timer := time.NewTimer(h.check.Every)
		select {
		case <-timer.C:
			h.once()
		case <-h.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// once makes one check.
func (h *Health[A]) once() {
	within, cancel := context.WithTimeout(h.ctx, h.check.Every)
	defer cancel()
	type verdict struct{ err error }
	done := make(chan verdict, 1)
	go func() { done <- verdict{h.check.Func(within)} }()
	period := time.NewTicker(h.check.Every)
	defer period.Stop()
	late := false
	for {
		select {
		case v := <-done:
			if h.ctx.Err() == nil && !late { // else it was noted, or does not matter any more
				h.note(v.err)
			}
			return
		case <-period.C:
			late = true
			h.note(&api.Error{Code: api.DeadlineExceeded, Op: "check",
				Message: fmt.Sprintf("the check of health has not returned within %v", h.check.Every)})
		case <-h.ctx.Done():
			<-done
			return
		}
	}
}

// note takes note of what came of a check.
func (h *Health[A]) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && h.err != nil:
		h.err, h.failed, h.sick = nil, 0, make(chan struct{})
		close(h.well)
	case err == nil:
		h.failed = 0
	case h.err != nil:
		h.err = err
	default:
		if h.failed++; h.failed >= h.check.Failures {
			h.err, h.well = err, make(chan struct{})
			close(h.sick)
		}
	}
}
