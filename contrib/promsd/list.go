package promsd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

const (
	// tendPeriod is how often a file is compared with its list, and the age of the list is looked at.
	tendPeriod = 2 * time.Second
	// refusedPause is between two attempts after an answer that takes a person to change, such as
	// PermissionDenied.
	refusedPause = 10 * time.Second
)

// list is the list of a Job.
type list struct {
	job     Job
	log     *slog.Logger
	changed chan struct{} // capacity 1: full if the list may be newer than the file

	mu       sync.Mutex     // guards what follows
	newest   *listing       // nil before the cell has answered
	seen     bool           // newest is what the cell has answered in this session
	session  *client.Client // nil without one
	refusal  error          // why the list cannot be read; nil if it is not known that it cannot
	writes   uint64
	failures uint64
	failure  string // of the last attempt to write the file; empty if it succeeded
}

// follow follows the directory until ctx ends. It returns an error that another attempt would not change.
func (l *list) follow(ctx context.Context, from client.Sessions) error {
	for {
		err := from.Renew(ctx, l.inSession)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, client.Closed) || errors.Is(err, api.InvalidArgument) {
			return err
		}
		l.refuse(err)
		l.log.WarnContext(ctx, "the list cannot be read, and stays as it is", "error", err, "retry", refusedPause)
		pause := time.NewTimer(refusedPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// inSession follows the directory in one session.
func (l *list) inSession(ctx context.Context, c *client.Client) error {
	l.enter(c)
	defer l.enter(nil)
	for now, err := range l.job.listings(ctx, c) {
		if err != nil {
			return err
		}
		l.set(now)
	}
	return nil
}

// enter takes note of the session; nil is none.
func (l *list) enter(c *client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.seen = c, false
}

func (l *list) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
}

// set takes note of what the cell has answered.
func (l *list) set(now listing) {
	l.mu.Lock()
	l.newest, l.seen, l.refusal = &now, true, nil
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default: // it is full
	}
}

// state is what is known of a list.
type state struct {
	newest           *listing // nil before the cell has answered
	fresh            bool     // the list is what the cell has, as far as can be known here
	refusal          error
	writes, failures uint64
}

func (l *list) state() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return state{
		newest: l.newest, fresh: l.seen && l.session != nil && l.session.Left() > 0,
		refusal: l.refusal, writes: l.writes, failures: l.failures,
	}
}

// tend keeps the file, and logs when the list is out of date, until ctx ends.
func (l *list) tend(ctx context.Context) {
	if l.job.File != "" {
		if err := removeTemporaries(l.job.File); err != nil {
			l.log.WarnContext(ctx, "temporary files of an earlier run could not be removed", "error", err)
		}
	}
	tick := time.NewTicker(tendPeriod)
	defer tick.Stop()
	fresh := true // so that the first thing that is said is what is wrong
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		case <-tick.C:
		}
		now := l.state()
		if now.newest != nil && l.job.File != "" {
			l.write(ctx, *now.newest)
		}
		if now.fresh != fresh {
			fresh = now.fresh
			l.sayFresh(ctx, now)
		}
	}
}

func (l *list) sayFresh(ctx context.Context, now state) {
	switch {
	case now.fresh:
		l.log.InfoContext(ctx, "the list is up to date", "targets", now.newest.targets)
	case now.newest == nil:
		l.log.WarnContext(ctx, "the cell has not answered yet; a file of an earlier run stays as it is")
	default:
		l.log.WarnContext(ctx, "the cell cannot be reached; the list stays as it is", "targets", now.newest.targets)
	}
}

// write writes the file, if it differs.
func (l *list) write(ctx context.Context, now listing) {
	written, err := replaceFile(l.job.File, now.text)
	var failure string
	if err != nil {
		failure = err.Error()
	}
	l.mu.Lock()
	before := l.failure
	l.failure = failure
	if err != nil {
		l.failures++
	}
	if written {
		l.writes++
	}
	l.mu.Unlock()
	switch {
	case err != nil && before == "": // not again each period
		l.log.ErrorContext(ctx, "the file could not be written; it is tried again", "error", err, "retry", tendPeriod)
	case err == nil && written:
		l.log.InfoContext(ctx, "the file was written", "targets", now.targets, "skipped", now.skipped)
	}
}
