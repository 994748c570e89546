package client

import (
	"context"
	"errors"

	"github.com/chubbylock/chubby/api"
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
//     be answered otherwise;
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
	var p pause
	for first := true; ; first = false {
		if !first {
			p.wait(ctx) // clients that lost their sessions together do not come back together
		}
		c, err := cell.NewSession(ctx, cell.cfg.Session())
		if err != nil {
			if ctx.Err() != nil || !passes(api.CodeOf(err)) {
				return err
			}
			cell.cfg.Logger.WarnContext(ctx, "no session could be opened yet", "cell", cell.cfg.Cell, "error", err)
			continue
		}
		if err := c.serve(ctx, register); err != nil {
			return err
		}
	}
}

// passes reports whether a session that was refused with that code may be had
// later: it ended before its creation was answered, or sessions that are about to
// end, as the one before, count against the quota.
func passes(c api.Code) bool { return c == api.SessionExpired || c == api.QuotaExceeded }

// serve calls the functions of Renew, waits for the session to be over, and closes
// the client. It returns nil if there is to be another session.
func (c *Client) serve(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	// Once ctx has ended, there is still a session to be closed.
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // a session that cannot be ended ends by itself
	within, cancel := c.session.during(ctx)
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
	e := &api.Error{Code: api.DeadlineExceeded, Op: "keep a session", Path: c.root(), Err: contextError(ctx), Message: "its time was over, and it has been closed"}
	if errors.Is(ctx.Err(), context.Canceled) {
		e.Code = api.Cancelled
	}
	return e
}
