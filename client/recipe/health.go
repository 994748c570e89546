package recipe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Healthy binds an announcement to a check of the program's: while it fails, the announcement is withdrawn, so
// that Members and Lookup do not have it, and when it passes again, it is made again, with the newest value. check is
// called once by Announce itself, and then every so often, counted from the end of one call to the beginning of the
// next, from one goroutine and never twice at a time. An error is a failure; so is each period in which check has not
// returned. It is given a context that ends after that time, or with the announcement, and must return then: Withdraw
// waits for it, once the file is removed. After so many failures in a row, 1 or more, the announcement is
// withdrawn, and after the first check that passes, put back.
//
// If the first check fails, Announce returns an announcement that is withdrawn, and that another has the name is told
// by Presence.Context later, if a check passes. A name that is withdrawn is free: another may take it, which ends the
// announcement when it would be put back. It is Context that says that the announcement has ended; Presence.Health says
// whether it is withdrawn. A file whose lock a stranger holds cannot be removed: Members has it until he closes it.
//
// A withdrawal costs two calls, and so does putting it back; all who watch the directory hear of both. What flaps
// should have a check of its own that does not.
func Healthy(check func(ctx context.Context) error, every time.Duration, failures int) AnnounceOption {
	return func(o *announceOptions) {
		o.health = &health{check: check, every: every, failures: failures, checked: make(chan struct{})}
	}
}

// health is what the checks of an announcement say.
type health struct {
	check    func(ctx context.Context) error
	every    time.Duration
	failures int
	checked  chan struct{} // closed when the goroutine that checks has ended

	mu     sync.Mutex // guards what follows
	failed int        // in a row
	err    error      // the last failure; nil while the announcement is to be shown
	sound  context.Context
	end    context.CancelCauseFunc // of sound
	well   chan struct{}           // closed when the announcement is to be shown
}

// fault refuses arguments that make no sense.
func (h *health) fault(path string) error {
	if h == nil || h.check != nil && h.every > 0 && h.failures > 0 {
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Op: "announce", Path: path,
		Message: fmt.Sprintf("a check of health every %v, and %d failures; give a function, a period and one failure at least", h.every, h.failures)}
}

// begin makes the first check, and reports whether it has passed. An error is that of ctx.
func (h *health) begin(ctx context.Context) (passed bool, err error) {
	within, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	failed := h.check(within)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	h.well = make(chan struct{})
	h.err = failed
	h.sound, h.end = context.WithCancelCause(context.Background())
	if failed != nil {
		h.failed = h.failures
		h.end(failed)
		return false, nil
	}
	close(h.well)
	return true, nil
}

// run checks until ctx ends.
func (h *health) run(ctx context.Context) {
	defer close(h.checked)
	for {
		timer := time.NewTimer(h.every)
		select {
		case <-timer.C:
			h.once(ctx)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// once makes one check.
func (h *health) once(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	type verdict struct{ err error }
	done := make(chan verdict, 1)
	go func() { done <- verdict{h.check(within)} }()
	period := time.NewTicker(h.every)
	defer period.Stop()
	late := false
	for {
		select {
		case v := <-done:
			if ctx.Err() == nil && !late { // else it was noted, or does not matter any more
				h.note(v.err)
			}
			return
		case <-period.C:
			late = true
			h.note(&api.Error{Code: api.DeadlineExceeded, Op: "check", Message: fmt.Sprintf("the check of health has not returned within %v", h.every)})
		case <-ctx.Done():
			<-done
			return
		}
	}
}

// note takes note of what came of a check.
func (h *health) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && h.err != nil:
		h.sound, h.end = context.WithCancelCause(context.Background())
		close(h.well)
		h.err, h.failed = nil, 0
	case err == nil:
		h.failed = 0
	case h.err != nil:
		h.err = err
	default:
		if h.failed++; h.failed >= h.failures {
			h.err, h.well = err, make(chan struct{})
			h.end(err)
		}
	}
}

// state returns a context that ends when the announcement is to be withdrawn, and a channel that is closed when it is to
// be shown.
func (h *health) state() (sound context.Context, well <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sound, h.well
}

// Health returns why the announcement is withdrawn at the moment: the error of the last check (Healthy). It is nil
// while the announcement is shown, or about to be, and without a check.
func (p *Presence) Health() error {
	if p.health == nil {
		return nil
	}
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	return p.health.err
}

// lasts waits until the file is to be made again: it was deleted, or is withdrawn because a check has failed.
func (p *Presence) lasts(file *client.Handle) error {
	within := p.ctx
	if p.health != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithCancel(p.ctx)
		defer cancel()
		sound, _ := p.health.state()
		defer context.AfterFunc(sound, cancel)()
	}
	err := deleted(within, file)
	switch {
	case err == nil:
		p.put(nil)
		leave(p.ctx, file)
	case p.ctx.Err() == nil && within.Err() != nil: // a check has failed; if the session has ended, the announcement ends with that error instead
		_ = discard(p.ctx, file) // what holds up its removal does not keep the file when it is closed
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx) // Withdraw removes it
		}
		p.put(nil)
		return p.c.Err()
	}
	return err
}

// awaitHealth waits until the announcement is to be shown.
func (p *Presence) awaitHealth() error {
	if p.health == nil {
		return nil
	}
	for {
		sound, well := p.health.state()
		if sound.Err() == nil {
			return nil
		}
		p.stayAway()
		select {
		case <-well:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-p.c.Done():
			return p.c.Err()
		}
	}
}

// stayAway takes note that there is no file until a check has passed. Who waits for it to be made looks again.
func (p *Presence) stayAway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.away {
		p.away = true
		close(p.made)
		p.made = make(chan struct{})
	}
}

// discard removes a file.
func discard(ctx context.Context, file *client.Handle) error {
	// Close alone would not do: a reader that has the file open in this moment would keep it. But it is
	// closed whatever came of the other: left open, the file stays for the life of the session.
	err := file.Delete(ctx)
	if closing := file.Close(ctx); err == nil || gone(err) {
		err = closing
	}
	return err
}
