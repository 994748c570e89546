package client

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Renew keeps a session open until ctx ends: it opens a new one for each that is lost
// (Chubby §2.8). For each session it calls the functions register, in their order:
// they make again what was lost with the session before, by opening files, acquiring
// locks, creating ephemeral nodes. Their context ends, with the cause, when that
// session is gone, also after they have returned: it is the one for work that depends
// on the session. A function may block until then, for example to campaign and serve;
// the functions after it are not called before it returns.
//
// Nothing of one session runs any more when the functions are called for the next:
// its context has ended, each function has returned, and its Client was closed,
// before the next session is opened. So a function that ignores the end of its
// context delays everything, which the Logger is told after five seconds, and a function
// that starts goroutines waits for them.
// While the cell has no master, Renew looks for one.
//
// It returns
//   - the error of a function, unless its session was gone when it returned: then the
//     error is attributed to that, and the function is called again with the next
//     session;
//   - the error of NewSession, if it is an answer that another attempt would not
//     change. After the loss of a session, QuotaExceeded is not such an answer for two
//     minutes, as the lost session may count until the cell has ended it;
//   - once ctx has ended, an error that wraps that of ctx: Cancelled, or
//     DeadlineExceeded, or what NewSession says of its search for a master.
//
// It never returns nil. By then it has closed the session, which frees its locks, and
// takes 5 s at most.
func Renew(ctx context.Context, cfg Config, register ...func(ctx context.Context, c *Client) error) error {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = cell.Close() }() // it never fails
	var p retryPause
	var lost session.Instant // when the previous session was lost; 0 before the first
	for {
		c, err := openNext(ctx, cell, lost)
		if err != nil {
			return err
		}
		if err := c.runSession(ctx, register); err != nil {
			return err
		}
		lost = cell.cfg.Clock()
		p.wait(ctx) // clients that lost their sessions at the same moment should not come back at the same moment
	}
}

// openNext opens a session, the first or the one after a session that was lost at that
// time. It goes on trying while another attempt may be answered otherwise.
func openNext(ctx context.Context, cell *Cell, lost session.Instant) (*Client, error) {
	var p retryPause
	var refused error // of the last attempt
	for {
		c, err := cell.NewSession(ctx, cell.cfg.Session())
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil && refused != nil:
			return nil, fmt.Errorf("%w; the last answer was: %w", err, refused)
		case ctx.Err() != nil || !isTemporaryRefusal(err, lost, cell.cfg.Clock):
			return nil, err
		}
		refused = err
		cell.cfg.Logger.WarnContext(ctx, "no session could be opened yet", "cell", cell.cfg.Cell, "error", err)
		p.wait(ctx)
	}
}

// maxQuotaWait is how long a session that was lost may count against the quota of its
// principal: the longest lease, and as much again for the cell to end it, also after
// a fail-over.
const maxQuotaWait = 2 * api.MaxLease

// isTemporaryRefusal reports whether a session that was refused with err may be had
// later: the new session had ended before its creation was answered, or the previous
// one, which was lost at that time, still counts against the quota.
func isTemporaryRefusal(err error, lost session.Instant, clock session.Clock) bool {
	switch api.CodeOf(err) {
	case api.SessionExpired:
		return true
	case api.QuotaExceeded:
		return lost != 0 && clock().Sub(lost) < maxQuotaWait
	}
	return false
}

// runSession calls the functions of Renew, waits for the end of the session, and
// closes the client. It returns nil if there is to be another session.
func (c *Client) runSession(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	// The session must be closed after the end of ctx too.
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // a session that cannot be ended ends when its lease runs out
	return runFunctions(ctx, c, register)
}

// tooLong is how long a function of Renew may go on after the end of its context before that is logged.
const tooLong = 5 * time.Second

// callRegistered calls a function of Renew. It logs that the function does not return after the end of its context: until it
// does, there is no other session, and Renew does not return.
func callRegistered(ctx context.Context, c *Client, f func(ctx context.Context, c *Client) error) error {
	returned := make(chan struct{})
	defer close(returned)
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(tooLong)
		defer late.Stop()
		select {
		case <-returned:
		case <-late.C:
			c.cell.cfg.Logger.WarnContext(ctx, "a function of Renew has not returned after the end of its context, and everything waits for it: have it wait for ctx.Done(), too",
				"cell", c.cell.cfg.Cell, "waited", tooLong)
		}
	})
	defer stop()
	return f(ctx, c)
}

// runFunctions calls the functions of Renew, and waits for the end of the session. It
// returns nil if there is to be another session.
func runFunctions(ctx context.Context, c *Client, register []func(ctx context.Context, c *Client) error) error {
	within, cancel := c.session.withSession(ctx)
	defer cancel()
	for _, f := range register {
		err := callRegistered(within, c, f)
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
	return &api.Error{
		Code:    api.ContextCode(ctx.Err()),
		Op:      "keep a session",
		Path:    rootPath(c.cell.cfg),
		Message: "its time was over, and it has been closed",
		Err:     contextError(ctx),
	}
}
