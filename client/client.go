package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/session"
)

// Client is a session with a cell, and a way to look at that cell. Its methods
// may be called from several goroutines. It must be closed, also when the
// session is gone.
type Client struct {
	*Cell

	session  *belief
	numbers  *numbers
	janitor  *janitor
	notifier *notifier
	handles  *handles
	audit    chan struct{} // capacity 1: events may have been lost

	running sync.WaitGroup
	stop    chan struct{} // closed by Close: the notifier may go
	closing sync.Once
	closed  error // of the first Close; set before closing is done
}

// nonceSize is the bytes of chance that name a session before it has a number:
// enough that no two clients choose the same.
const nonceSize = 16

// New finds the master of a cell and opens a session with it. It keeps trying
// until ctx ends, and then fails with Unavailable, saying whom it asked and what
// each answered; a server of another cell is WrongCell, at once. ctx bounds New
// only: the session lives until Close, or until it is lost (Done).
func New(ctx context.Context, cfg Config) (*Client, error) {
	cell, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{
		Cell: cell, numbers: newNumbers(), janitor: newJanitor(), notifier: newNotifier(), handles: newHandles(),
		audit: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if err := c.create(ctx); err != nil {
		_ = cell.Close() // it never fails
		return nil, err
	}
	c.running.Go(c.session.run)
	c.running.Go(func() { c.keepAlive(c.session.over) })
	c.running.Go(func() { c.janitor.run(c.session.over) })
	c.running.Go(func() { c.auditor(c.session.over) })
	c.running.Go(func() { c.notifier.run(c.stop) })
	return c, nil
}

// create makes the session, under one nonce however often it takes.
func (c *Client) create(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // it is for people
	}
	request := &chubbypb.CreateSessionRequest{
		Cell: c.cfg.Cell, Nonce: make([]byte, nonceSize), LeaseNs: int64(c.cfg.Lease), Host: host, Pid: int64(os.Getpid()), As: c.cfg.As,
	}
	rand.Read(request.Nonce)
	_, err = c.finder.run(ctx, call{op: "open a session", path: c.root(),
		attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			sent := c.cfg.Clock() // of this attempt: the lease counts from the request that is answered
			reply, err := t.chubby.CreateSession(ctx, request)
			if err == nil {
				c.session = newBelief(ctx, c.cfg, sent, reply, c.notifier.post)
			}
			return err
		}})
	return err
}

// closeTime bounds how long Close tries to reach the master: a session that
// cannot be ended ends by itself.
const closeTime = 5 * time.Second

// Close ends the session, which frees its locks at once, closes the
// connections, and returns when no goroutine of the client runs any more. The
// contexts of locks are cancelled first. It tries to reach the master until ctx
// ends, at most 5 s. An error means that the cell may keep the session, and its
// locks, until lease and lock-delay are over; the client is closed all the
// same. Later calls of Close do nothing and return the same.
func (c *Client) Close(ctx context.Context) error {
	c.closing.Do(func() {
		if c.session.end(Closed, "it was closed") {
			ctx, cancel := context.WithTimeout(ctx, closeTime)
			defer cancel()
			c.closed = c.endOwn(ctx)
		}
		close(c.stop)
		_ = c.Cell.Close() // it never fails
		c.running.Wait()
	})
	return c.closed
}

// endOwn ends this client's session at the cell.
func (c *Client) endOwn(ctx context.Context) error {
	_, err := c.finder.run(ctx, call{op: "close the session", path: c.root(),
		attempt: func(ctx context.Context, t *target, _ *chubbypb.Caller) error {
			_, err := t.chubby.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: c.session.caller()})
			return err
		}})
	if api.CodeOf(err) == api.SessionExpired {
		return nil
	}
	return err
}

// Session returns the number of the session.
func (c *Client) Session() api.SessionID { return c.session.id }

// Epoch returns the epoch of the newest master that the session has heard of.
func (c *Client) Epoch() api.Epoch { return api.Epoch(c.session.caller().GetEpoch()) }

// State looks at the clock and says what may be believed of the session.
func (c *Client) State() session.State {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.look()
}

// Left returns how long the lease still runs by the local clock: negative once
// it ran out.
func (c *Client) Left() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.End().Sub(c.session.clock())
}

// Lease returns the length of the newest grant, which may be longer than the
// one asked for.
func (c *Client) Lease() time.Duration {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.local.Lease()
}

// Done is closed when the session is gone, or the client closed.
func (c *Client) Done() <-chan struct{} { return c.session.over.Done() }

// Err says why the session is gone, nil while it is not: an *api.Error with the
// code SessionExpired that wraps a Cause (Closed, EndedByCell or GraceOver).
func (c *Client) Err() error {
	if why := c.session.gone(); why != nil {
		return why
	}
	return nil
}

// EndSession ends another client's session, as an operator's act. The locks it
// holds become free once their holder has acknowledged, or its lease and their
// lock-delays are over. The errors are SessionExpired if the caller's own
// session is gone, NotFound for a session that is not there, PermissionDenied.
func (c *Client) EndSession(ctx context.Context, id api.SessionID, reason string) error {
	if id == 0 || id == c.Session() {
		return &api.Error{Code: api.InvalidArgument, Op: "end session", Path: id.String(), Message: "that is this client's own session; Close ends it"}
	}
	return c.read(ctx, "end session "+id.String(), c.root(), func(ctx context.Context, t *target, caller *chubbypb.Caller) error {
		_, err := t.chubby.EndSession(ctx, &chubbypb.EndSessionRequest{Caller: caller, Target: uint64(id), Reason: reason})
		if err = chubbypb.Error(err); api.CodeOf(err) == api.SessionExpired {
			// It may be the other session that is meant; if it is our own, the next
			// KeepAlive says so.
			err = api.Errorf(api.NotFound, "there is no session %v: %s", id, brief(err))
		}
		return err
	})
}

// BreakLock takes the lock on a node away from its holders, as an operator's
// act. Their sequencers die at once; the lock is free once they have
// acknowledged, or their lease and lock-delay are over. With now it is free at
// once, and two may then believe that they hold it.
func (c *Client) BreakLock(ctx context.Context, path, reason string, now bool) error {
	p, err := c.parse("break the lock", path)
	if err != nil {
		return err
	}
	if len(reason) > api.MaxReason {
		return &api.Error{Code: api.InvalidArgument, Op: "break the lock", Path: path,
			Message: fmt.Sprintf("the reason is %d bytes long; at most %d are allowed", len(reason), api.MaxReason)}
	}
	return c.mutate(ctx, mutation{op: "break the lock", path: path,
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			_, err := t.chubby.BreakLock(ctx, &chubbypb.BreakLockRequest{Caller: caller, Mutation: m, Path: p.String(), Reason: reason, Now: now})
			return err
		}})
}
