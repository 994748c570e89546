package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
)

// Keeper has a session for code that others call at any time, such as the methods of a plug-in: it opens one
// on use, and another after a loss. (A program in control itself uses Renew.) Its methods may be called from
// several goroutines. Close it.
//
// A lost session takes with it the program's handles, locks and ephemeral files: calls fail with
// SessionExpired, and the contexts of the locks end; nothing restores them. A Keeper has no goroutines
// besides those of its sessions.
type Keeper struct {
	cell *Cell
	life context.Context //nolint:containedctx // of the Keeper: ended by Close
	end  context.CancelCauseFunc
	turn chan struct{} // capacity 1: full while a session is opened, and after Close
	once sync.Once     // of Close

	forRenew bool       // by Renew: when its functions have returned, the work under the locks has stopped
	pause    retryPause // before a session that follows a lost one; of who has the turn

	// mu guards what follows; take no mutex under it.
	mu      sync.Mutex
	current *keptSession    // or nil
	lost    []*keptSession  // lost sessions, to be closed; at most maxLost after a session was opened
	quota   session.Instant // until then the last lost session may count against the quota of its principal; 0 without one
}

type keptSession struct {
	client    *Client
	users     int         // running functions of Do
	abandoned atomic.Bool // by Abandon: the cell does not hear that the work under its locks has stopped
}

// maxLost limits a Keeper's lost sessions with unreleased locks: a program at the limit does not release lost
// locks.
const maxLost = 8

// Keep returns a Keeper for the cell of a Config, without connecting: the first Do opens a session. An
// invalid Config is InvalidArgument. The Keeper does not end with ctx.
func Keep(ctx context.Context, cfg Config) (*Keeper, error) {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	k := &Keeper{cell: cell, turn: make(chan struct{}, 1)}
	k.life, k.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return k, nil
}

// Do calls f with a session that has not ended, to its knowledge. Without one, it first tries to open one
// until ctx ends, as New does. Calls of Do run concurrently with one session. f must not keep the Client; the
// program may keep handles and locks, and releases locks also after their loss.
//
// The error is that of f, or why there is no session. If f returns SessionExpired because the session has
// ended, Do calls f once more with another session, unless a lasting change was, or may have been, made in
// the first since f was called, or ctx has ended. So f may run twice, the first time without a lasting effect
// in the cell; its effects elsewhere happen twice. A change by another Do also prevents the second call.
//
// After Close the error is Unavailable, with the cause Closed. With eight lost sessions whose locks the
// program has not released, it is QuotaExceeded.
func (k *Keeper) Do(ctx context.Context, f func(c *Client) error) error {
	again, err := k.run(ctx, f)
	if again && ctx.Err() == nil && k.life.Err() == nil {
		_, err = k.run(ctx, f)
	}
	return err
}

func (k *Keeper) run(ctx context.Context, f func(c *Client) error) (again bool, err error) {
	s, err := k.enter(ctx)
	if err != nil {
		return false, err
	}
	defer k.leave(ctx, s) // also if f panics
	changes := &s.client.session.counters.lastingChanges
	before := changes.Load()
	err = f(s.client)
	return errors.Is(err, api.SessionExpired) && s.client.Err() != nil && changes.Load() == before, err
}

// enter returns a session that has not ended; the caller then calls leave.
func (k *Keeper) enter(ctx context.Context) (*keptSession, error) {
	for {
		k.mu.Lock()
		s := k.current
		if s != nil {
			s.users++
		}
		k.mu.Unlock()
		if s != nil {
			if s.client.Err() == nil {
				return s, nil
			}
			k.leave(ctx, s)
		}
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, k.errorf(api.ContextCode(ctx.Err()), contextError(ctx), "there is no session, and another call was opening one until the end")
		case <-k.life.Done():
			return nil, context.Cause(k.life)
		}
		err := k.open(ctx)
		<-k.turn
		if err != nil {
			return nil, err
		}
	}
}

// open opens a session, unless there is one by now. The caller has the turn.
func (k *Keeper) open(ctx context.Context) error {
	k.closeLost(ctx)
	k.mu.Lock()
	there, lost, quota := k.current != nil, len(k.lost), k.quota
	k.mu.Unlock()
	switch {
	case there:
		return nil
	case lost >= maxLost:
		return k.errorf(api.QuotaExceeded, nil, "%d sessions were lost and are in use still: functions have not returned, or locks were not released; release each lock, also when it was lost", lost)
	}
	ctx, cancel := endingWith(ctx, k.life)
	defer cancel()
	if quota != 0 {
		k.pause.wait(ctx) // clients that lost their sessions together should not return together
	}
	c, err := openNext(ctx, k.cell, quota)
	if k.life.Err() != nil {
		if err == nil {
			_ = c.Close(ctx) // otherwise it ends with its lease
		}
		return context.Cause(k.life)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = &keptSession{client: c} // Close waits for the turn, and finds it
	return nil
}

// leave ends a use of a session, and closes lost ones.
func (k *Keeper) leave(ctx context.Context, s *keptSession) {
	lost := s.client.Err() != nil
	k.mu.Lock()
	s.users--
	if lost && k.current == s {
		k.current = nil
		k.lost = append(k.lost, s)
		k.quota = k.cell.cfg.Clock().Add(maxQuotaWait)
	}
	k.mu.Unlock()
	if lost {
		k.closeLost(ctx)
	}
}

// closeLost closes lost, unused sessions. Close says that the work under their locks has stopped. If the cell
// waits for that, having ended the session, the program must have released the locks before, or be that of
// Renew.
func (k *Keeper) closeLost(ctx context.Context) {
	k.mu.Lock()
	unused := slices.DeleteFunc(slices.Clone(k.lost), func(s *keptSession) bool { return s.users > 0 })
	k.mu.Unlock()
	limit := CleanupTime // a caller of Do waits
	if k.forRenew {
		limit = maxCloseTime
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, s := range unused {
		if !k.forRenew && !s.abandoned.Load() && errors.Is(s.client.Err(), EndedByCell) && len(s.client.handles.unreleasedLocks()) > 0 {
			continue
		}
		k.mu.Lock()
		k.lost = slices.DeleteFunc(k.lost, func(one *keptSession) bool { return one == s })
		k.mu.Unlock()
		_ = s.client.Close(ctx) // lost, and others may close it at the same time
	}
}

// Abandon gives up the present session, for a program that does not know whether the work under its locks has
// stopped. The session ends in this process only: the contexts of its locks end and calls fail with
// SessionExpired. The cell, which is not told, keeps it and its locks until lease and lock-delays have
// passed. The same holds for lost sessions with unreleased locks that the cell waits for. The next Do has
// another session. Abandon makes no call, and takes at most CleanupTime.
func (k *Keeper) Abandon(ctx context.Context) {
	k.mu.Lock()
	if k.current != nil {
		k.lost = append(k.lost, k.current)
		k.current, k.quota = nil, k.cell.cfg.Clock().Add(maxQuotaWait)
	}
	abandoned := slices.Clone(k.lost)
	k.mu.Unlock()
	for _, s := range abandoned {
		s.abandon()
	}
	k.closeLost(ctx)
}

// abandon ends a session for this process only. The cell is not told, even if it has ended the session
// itself.
func (s *keptSession) abandon() {
	s.abandoned.Store(true)
	s.client.session.endSession(Closed, "it was abandoned")
	//mutant: /* nothing */
	s.client.keeper.stop()
}

// Close ends the session, which frees its locks at once, and returns when nothing of the Keeper runs except
// functions given to Do, whose calls fail. So the caller says that the work under all locks has stopped. Its
// time and error are Client.Close's. Later calls do nothing.
func (k *Keeper) Close(ctx context.Context) (err error) {
	k.once.Do(func() {
		k.end(k.errorf(api.Unavailable, Closed, "the keeper is closed"))
		k.turn <- struct{}{} // a concurrent open gives up
		k.mu.Lock()
		all := k.lost
		if k.current != nil {
			all = append(all, k.current)
		}
		k.current, k.lost = nil, nil
		k.mu.Unlock()
		var faults []error
		for _, s := range all {
			faults = append(faults, s.client.Close(ctx))
		}
		_ = k.cell.Close() // never fails
		err = errors.Join(faults...)
	})
	return err
}

func (k *Keeper) errorf(code api.Code, cause error, format string, args ...any) error {
	return &api.Error{Code: code, Op: "keep a session", Path: rootPath(k.cell.cfg), Err: cause, Message: fmt.Sprintf(format, args...)}
}

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
	k, err := Keep(ctx, cfg)
	if err != nil {
		return err
	}
	k.forRenew = true
	defer func() { _ = k.Close(context.WithoutCancel(ctx)) }() // otherwise the session ends with its lease
	return k.Renew(ctx, register...)
}

// openNext opens a session. It retries while that may succeed: quota says until when a lost one may count
// against the quota, 0 without one.
func openNext(ctx context.Context, cell *Cell, quota session.Instant) (*Client, error) {
	var p retryPause
	var refused error // of the last attempt
	for {
		c, err := cell.NewSession(ctx, cell.cfg.Session())
		// The new session may have ended before the answer to its creation.
		again := api.CodeOf(err) == api.SessionExpired || api.CodeOf(err) == api.QuotaExceeded && cell.cfg.Clock() < quota
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil && refused != nil:
			return nil, fmt.Errorf("%w; the last answer was: %w", err, refused)
		case ctx.Err() != nil || !again:
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

// tooLong is how long a function of Renew may run after its context before a log line.
const tooLong = 5 * time.Second

// callRegistered calls a function of Renew. It logs a function that runs on after its context, and so delays
// the next session and the return of Renew.
func callRegistered(ctx context.Context, c *Client, f func(ctx context.Context, c *Client) error) error {
	returned := make(chan struct{})
	defer close(returned)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-returned:
		case <-time.After(tooLong):
			c.cell.cfg.Logger.WarnContext(ctx, "a function of Renew has not returned after the end of its context, and everything waits for it: have it wait for ctx.Done(), too",
				"cell", c.cell.cfg.Cell, "waited", tooLong)
		}
	})
	defer stop()
	return f(ctx, c)
}

func runFunctions(ctx context.Context, c *Client, register []func(ctx context.Context, c *Client) error) error {
	within, cancel := endingWith(ctx, c.session.ended)
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

// Sessions gives sessions to code that survives their loss: a Config, for sessions of its own, or a Keeper,
// for shared ones.
type Sessions interface {
	// Renew calls the functions with a session, and with another after a loss, as the function Renew does.
	Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error
}

// Renew is the function Renew, with sessions of its own.
func (c Config) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	return Renew(ctx, c, register...)
}

// Renew calls the functions register with the Keeper's session, and again with another after a loss, as the
// function Renew does, but shares the session and does not close it. It ends with ctx, with an error of a
// function while the session lasts, or when the Keeper is closed (see Do).
func (k *Keeper) Renew(ctx context.Context, register ...func(ctx context.Context, c *Client) error) error {
	for {
		if err := k.renewOnce(ctx, register); err != nil {
			return err
		}
	}
}

// renewOnce is Renew for one session. It returns nil if another should follow.
func (k *Keeper) renewOnce(ctx context.Context, register []func(ctx context.Context, c *Client) error) error {
	s, err := k.enter(ctx)
	if err != nil {
		return err
	}
	defer k.leave(ctx, s)
	return runFunctions(ctx, s.client, register)
}
