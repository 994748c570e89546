package client

import (
	"context"
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Renew keeps a session open until ctx ends: it opens a new one for each lost one (Chubby §2.8). For each
// session it calls the functions register, in order: they restore what was lost, by opening files, acquiring
// locks, creating ephemeral nodes. Their context ends, with the cause, when that session is gone, also after
// they have returned: use it for work that depends on the session. A function may block until then, for
// example to campaign and serve; later functions wait for it.
//
// Before Renew opens the next session, the context of the last has ended, each function has returned, and its
// Client was closed. So a function that ignores the end of its context delays everything, which the Logger
// reports after five seconds, and a function that starts goroutines waits for them. Renew looks for a missing
// master.
//
// It returns
//   - the error of a function, unless its session was gone at its return: then the next session calls it
//     again;
//   - the error of NewSession, if another attempt would not change it. After the loss of a session, Renew
//     retries QuotaExceeded for two minutes, as the lost session may count until the cell has ended it;
//   - once ctx has ended, an error that wraps that of ctx: Cancelled, or DeadlineExceeded, or NewSession's
//     about its search for a master.
//
// It never returns nil. By then it has closed the session, which frees its locks, and takes at most 5 s.
func Renew(ctx context.Context, cfg Config, register ...func(ctx context.Context, c *Client) error) error {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = cell.Close() }() // never fails
	var p retryPause
	var lost session.Instant // when the previous session was lost, or 0
	for {
		c, err := openNext(ctx, cell, lost)
		if err != nil {
			return err
		}
		if err := c.runSession(ctx, register); err != nil {
			return err
		}
		lost = cell.cfg.Clock()
		p.wait(ctx) // clients that lost their sessions together should not return together
	}
}

// openNext opens the first session or the one after a loss at that time. It retries while that may succeed.
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

// maxQuotaWait is how long a lost session may count against the quota of its principal: the longest lease,
// and as much again for the cell to end it, also after a fail-over.
const maxQuotaWait = 2 * api.MaxLease

// isTemporaryRefusal reports whether a session refused with err may succeed later: the new session had ended
// before the answer to its creation, or the previous one, lost at that time, still counts against the quota.
func isTemporaryRefusal(err error, lost session.Instant, clock session.Clock) bool {
	switch api.CodeOf(err) {
	case api.SessionExpired:
		return true
	case api.QuotaExceeded:
		return lost != 0 && clock().Sub(lost) < maxQuotaWait
	}
	return false
}

// runSession calls the functions of Renew, waits for the end of the session, and closes the client; nil:
// another session follows.
func (c *Client) runSession(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	// The session must be closed after the end of ctx too.
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // otherwise it ends with its lease
	return runFunctions(ctx, c, register)
}

// tooLong is how long a function of Renew may run after its context before a log line.
const tooLong = 5 * time.Second

// callRegistered calls a function of Renew. It logs a function that runs on after its context, and so delays
// the next session and the return of Renew.
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
