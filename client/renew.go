package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Renew keeps a session open until ctx ends, a new one for each that is lost
// (Chubby §2.8). For each it calls the functions register, in their order: they
// make again what went with the session before, by opening files, acquiring locks,
// creating ephemeral nodes. The context they are given ends, with the cause, when
// that session is over, also after they have returned: it is the one for work that
// depends on the session. A function may block until then, as one that campaigns
// and serves does; those after it are not called before it returns.
//
// Nothing of a session runs on while the functions run for the next. Its context
// has ended, each function has returned, and its Client was closed, before the next
// session is opened; so a function that ignores the end of its context holds all
// of it up, and one that starts goroutines waits for them. As long as the cell has
// no master, Renew looks for one.
//
// It returns
//   - the error of a function, unless its session was over when it returned: then
//     it is put down to that, and the function is called again with the next;
//   - the error of NewSession, if it is an answer, and another attempt could not
//     be answered otherwise: also QuotaExceeded, except that after the loss of a
//     session it asks again for two minutes, as the one before may count until the
//     cell has ended it;
//   - once ctx has ended, an error that wraps its error: Cancelled, or
//     DeadlineExceeded, or what NewSession says of its search for a master.
//
// It never returns nil. The session has been closed by then, which frees its
// locks, and takes 5 s at most.
func Renew(ctx context.Context, cfg Config, register ...func(ctx context.Context, c *Client) error) error {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = cell.Close() }() // it never fails
	var p retryPause
	var refused error        // of the last attempt, if it may be answered otherwise
	var lost session.Instant // when the session before was; 0 before the first
	for {
		c, err := cell.NewSession(ctx, cell.cfg.Session())
		switch {
		case err == nil:
			refused = nil
			if err := c.runSession(ctx, register); err != nil {
				return err
			}
			lost = cell.cfg.Clock()
		case ctx.Err() != nil && refused != nil:
			return fmt.Errorf("%w; the last answer was: %w", err, refused)
		case ctx.Err() != nil || !cell.isTemporaryRefusal(err, lost):
			return err
		default:
			refused = err
			cell.cfg.Logger.WarnContext(ctx, "no session could be opened yet", "cell", cell.cfg.Cell, "error", err)
		}
		p.wait(ctx) // clients that lost their sessions together do not come back together
	}
}

// quotaTime is how long a session that was lost may count against the quota of its
// principal: a lease, however long, and as much again for the cell to find it out,
// also after a fail-over.
const maxQuotaWait = 2 * api.MaxLease

// passes reports whether a session that was refused with err may be had later: it
// ended before its creation was answered, or the one before, which was lost at that
// time, counts against the quota until the cell has ended it.
func (c *Cell) isTemporaryRefusal(err error, lost session.Instant) bool {
	switch api.CodeOf(err) {
	case api.SessionExpired:
		return true
	case api.QuotaExceeded:
		return lost != 0 && c.cfg.Clock().Sub(lost) < maxQuotaWait
	}
	return false
}

// serve calls the functions of Renew, waits for the session to be over, and closes
// the client. It returns nil if there is to be another session.
func (c *Client) runSession(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	// Once ctx has ended, there is still a session to be closed.
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // a session that cannot be ended ends by itself
	within, cancel := c.session.withSession(ctx)
	defer cancel()
	for _, f := range register {
		err := f(within, c)
		if ctx.Err() != nil || c.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
	}
	<-within.Done()
	if ctx.Err() == nil {
		return nil
	}
	e := &api.Error{Code: api.DeadlineExceeded, Op: "keep a session", Path: c.cell.rootPath(), Err: contextError(ctx), Message: "its time was over, and it has been closed"}
	if errors.Is(ctx.Err(), context.Canceled) {
		e.Code = api.Cancelled
	}
	return e
}
