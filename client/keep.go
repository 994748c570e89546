package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

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

	// mu guards what follows; take no mutex under it.
	mu      sync.Mutex
	current *keptSession    // or nil
	lost    []*keptSession  // lost sessions, to be closed; at most maxLost after a session was opened
	lostAt  session.Instant // when the last loss was found
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
	there, lost, lostAt := k.current != nil, len(k.lost), k.lostAt
	k.mu.Unlock()
	switch {
	case there:
		return nil
	case lost >= maxLost:
		return k.errorf(api.QuotaExceeded, nil, "%d sessions were lost and are in use still: functions have not returned, or locks were not released; release each lock, also when it was lost", lost)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.life, func() { cancel(context.Cause(k.life)) })()
	if lostAt != 0 {
		var p retryPause
		p.wait(ctx) // clients that lost their sessions together should not return together
	}
	c, err := openNext(ctx, k.cell, lostAt)
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
		k.lostAt = k.cell.cfg.Clock()
	}
	k.mu.Unlock()
	if lost {
		k.closeLost(ctx)
	}
}

// closeLost closes lost, unused sessions. Close says that the work under their locks has stopped. If the cell
// waits for that, having ended the session, the program must have released the locks before.
func (k *Keeper) closeLost(ctx context.Context) {
	k.mu.Lock()
	unused := slices.DeleteFunc(slices.Clone(k.lost), func(s *keptSession) bool { return s.users > 0 })
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTime)
	defer cancel()
	for _, s := range unused {
		if !s.abandoned.Load() && errors.Is(s.client.Err(), EndedByCell) && len(s.client.handles.unreleasedLocks()) > 0 {
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
		k.current, k.lostAt = nil, k.cell.cfg.Clock()
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
